package fsm

import (
	"bytes"
	"fmt"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// The budgets of rules (S-350).
const (
	// entrySteps bounds what the rules of topics may cost in one entry, in steps of package rule: some 40 ms. 2,000
	// ordinary filters take about 80,000 of them for a message.
	entrySteps = 6 << 20
	// dueSteps bounds the same for one message that nobody waits for: scheduled, or moved here from another entity.
	dueSteps = 1 << 20
	// ruleSteps is what a rule costs besides its evaluation.
	ruleSteps = 16
	// stepsPerWork is how many steps are a unit of a Tick's work.
	stepsPerWork = fanOutPerTick * 40
)

// compiled is one rule of a subscription, ready to look at messages.
type compiled struct {
	name   string
	source []byte
	rule   *rule.Rule // nil if it does not compile, which the catalog does not let happen
	err    string
}

// compile makes the rules of a description ready; those that are as they were are taken over.
func compile(d *Descriptor, old []compiled) []compiled {
	known := make(map[string]*compiled, len(old)) // looked up, never ranged over
	for i := range old {
		known[old[i].name] = &old[i]
	}
	list := make([]compiled, len(d.Rules))
	for i := range d.Rules {
		c := compiled{name: d.Rules[i].Name, source: d.Rules[i].Source.Append(nil)}
		if was := known[c.name]; was != nil && bytes.Equal(was.source, c.source) {
			list[i] = *was
			continue
		}
		r, err := d.Rules[i].Source.Compile()
		if err != nil {
			c.err = err.Error()
		}
		c.rule = r
		list[i] = c
	}
	return list
}

// refuseCostly refuses messages that the rules of their topic take too long to look at. alone says that no other work
// of the entry has taken steps before.
func (s *State) refuseCostly(message int, alone bool, o *Outcome) {
	switch {
	case message > 0:
		o.refuse(QuotaExceeded, fmt.Sprintf("the rules of the topic take more than %d steps for these messages, they ran out "+
			"at message %d: send fewer at once, or make the rules simpler", entrySteps, message+1))
	case alone:
		o.refuse(QuotaExceeded, fmt.Sprintf("the rules of the topic take more than %d steps for this message: remove some, or "+
			"make them simpler (LIKE and comparisons of long texts cost most)", entrySteps))
	default:
		o.refuse(Busy, "the rules of topics took all steps of this entry")
	}
}
