package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// chooser looks for messages by a filter in the language of rules.
type chooser struct{ filter *rule.Filter }

// newChooser compiles a SQL filter. The error is a *rule.SyntaxError, for its writer.
func newChooser(expression string) (*chooser, error) {
	f, err := rule.Parse(expression, nil)
	if err != nil {
		return nil, err
	}
	return &chooser{f}, nil
}

// chooses reports whether the filter selects a message. One for which it cannot be evaluated is not selected.
func (c *chooser) chooses(d *fsm.Delivery) bool {
	m, err := Look(d)
	if err != nil {
		return false
	}
	chosen, err := c.filter.Match(m)
	return chosen && err == nil
}
