package catalog

import (
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// The limits of a namespace if nothing else is set (S-229).
const (
	MaxEntities           = 10000  // queues, topics and subscriptions
	MaxSubscriptions      = 2000   // of one topic
	MaxSQLFilters         = 2000   // of one topic
	MaxCorrelationFilters = 100000 // of one topic
)

// MostEntities is how far the number of entities may be raised; the other limits may be lowered only.
// Every node holds all descriptions, of about a kilobyte each, and writes them all into each snapshot.
const MostEntities = 10 * MaxEntities

// Limits bound what a namespace and each topic in it may hold (S-229). They travel in the change that is
// judged by them: replicas that are configured differently would judge differently by their own. A field
// that is 0 has its default, and so have all of a change without limits.
type Limits struct {
	Entities           int `json:"entities,omitempty"`
	Subscriptions      int `json:"subscriptions,omitempty"`      // of one topic
	SQLFilters         int `json:"sqlFilters,omitempty"`         // of one topic
	CorrelationFilters int `json:"correlationFilters,omitempty"` // of one topic
	// RuleChars is the longest text of a filter or action, in characters; 0 is what the language takes.
	RuleChars int `json:"ruleChars,omitempty"`
}

// Validate reports every limit that cannot be set.
func (l *Limits) Validate() error {
	var errs []error
	for _, f := range []struct {
		name    string
		is, max int
	}{
		{"entities", l.Entities, MostEntities}, {"subscriptions", l.Subscriptions, MaxSubscriptions},
		{"SQL filters", l.SQLFilters, MaxSQLFilters},
		{"correlation filters", l.CorrelationFilters, MaxCorrelationFilters},
		{"rule characters", l.RuleChars, rule.MaxExpressionChars},
	} {
		if f.is < 0 || f.is > f.max {
			errs = append(errs, fmt.Errorf("limit of %s is %d, want 0 to %d", f.name, f.is, f.max))
		}
	}
	return errors.Join(errs...)
}

// filled returns the limits with a default in the place of each 0.
func (l *Limits) filled() Limits {
	var out Limits
	if l != nil {
		out = *l
	}
	for _, f := range []struct {
		at    *int
		other int
	}{
		{&out.Entities, MaxEntities}, {&out.Subscriptions, MaxSubscriptions},
		{&out.SQLFilters, MaxSQLFilters}, {&out.CorrelationFilters, MaxCorrelationFilters},
		{&out.RuleChars, rule.MaxExpressionChars},
	} {
		if *f.at == 0 {
			*f.at = f.other
		}
	}
	return out
}
