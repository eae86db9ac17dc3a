package catalog

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// S-229: what a change brings is the limit, and without it the default.
func TestAChangeIsJudgedByTheLimitsThatItBrings(t *testing.T) {
	correlation := func(name string) fsm.Rule {
		label := name
		return fsm.Rule{Name: name, Source: rule.Source{Kind: rule.CorrelationFilter,
			Correlation: &rule.Correlation{Label: &label}}}
	}
	acting := sqlRule("acting", "1=1")
	acting.Source.Action = "SET a = 'long enough'"
	for name, tc := range map[string]struct {
		limits Limits
		next   func(s *fsm.Descriptor, i int) Change // i is 0 for what fits, 1 for what does not
	}{
		"entities": {Limits{Entities: 3}, func(_ *fsm.Descriptor, i int) Change {
			return Change{Create: queue(fmt.Sprint("q", i))}
		}},
		"subscriptions": {Limits{Subscriptions: 2}, func(_ *fsm.Descriptor, i int) Change {
			return Change{Create: subscription(fmt.Sprint("t/Subscriptions/s", i))}
		}},
		"SQL filters": {Limits{SQLFilters: 1}, func(s *fsm.Descriptor, i int) Change {
			return Change{PutRule: &RulePut{Entity: s.ID, Rule: sqlRule(fmt.Sprint("r", i), "1=1")}}
		}},
		"SQL filters of a new subscription": {Limits{SQLFilters: 1}, func(_ *fsm.Descriptor, i int) Change {
			d := subscription(fmt.Sprint("t/Subscriptions/s", i))
			d.Rules = []fsm.Rule{sqlRule("r", "1=1")}
			return Change{Create: d}
		}},
		"correlation filters": {Limits{CorrelationFilters: 1}, func(s *fsm.Descriptor, i int) Change {
			return Change{PutRule: &RulePut{Entity: s.ID, Rule: correlation(fmt.Sprint("r", i))}}
		}},
		"the text of a filter": {Limits{RuleChars: 10}, func(s *fsm.Descriptor, i int) Change {
			return Change{PutRule: &RulePut{Entity: s.ID, Rule: sqlRule("r", "a = 'éééé"+strings.Repeat("é", i)+"'")}}
		}},
		"the text of an action": {Limits{RuleChars: 20}, func(s *fsm.Descriptor, i int) Change {
			return Change{PutRule: &RulePut{Entity: s.ID, Rule: []fsm.Rule{sqlRule("acting", "1=1"), acting}[i]}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.topicWith("one")[1]
			first, second := tc.next(s, 0), tc.next(s, 1)
			first.Limits, second.Limits = &tc.limits, &tc.limits
			w.must(first)
			w.refused(second, fsm.QuotaExceeded)
			second.Limits = nil
			w.must(second)
		})
	}
}

// What a log may hold from before there were limits in it reads the same.
func TestDefaultLimitsAreNotWritten(t *testing.T) {
	if b := (&Change{Create: queue("q")}).Command().Data; bytes.Contains(b, []byte("imits")) {
		t.Errorf("%s", b)
	}
	if got := (*Limits)(nil).filled(); got != (Limits{MaxEntities, MaxSubscriptions, MaxSQLFilters,
		MaxCorrelationFilters, rule.MaxExpressionChars}) {
		t.Errorf("defaults %+v", got)
	}
}

func TestLimitsOutOfRangeAreNamed(t *testing.T) {
	good := Limits{Entities: MostEntities, Subscriptions: MaxSubscriptions, RuleChars: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	err := (&Limits{MostEntities + 1, -1, MaxSQLFilters + 1, MaxCorrelationFilters + 1, 1025}).Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("got %v", err)
	}
}
