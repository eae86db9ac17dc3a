package catalog

import (
	"slices"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// Limits of topics, subscriptions and rules.
const (
	maxNameChars = 50 // of a subscription or rule (S-228)
	// maxRuleBytes bounds the rules of one subscription together: its whole description must fit a log
	// entry with room to spare.
	maxRuleBytes = 1 << 20
)

// newSubscription checks a subscription that is to be created and completes its rules.
func (s *State) newSubscription(d *fsm.Descriptor, limits *Limits) (*fsm.Descriptor, fsm.Outcome) {
	topic, name, ok := SplitSubscription(d.Name)
	parent := s.view.Entity(topic)
	switch {
	case !ok || parent == nil || parent.Kind != fsm.Topic:
		return nil, refuse(fsm.EntityNotFound, "subscription %q has no topic", d.Name)
	case utf8.RuneCountInString(name) > maxNameChars:
		return nil, refuse(fsm.InvalidArgument, "the name of a subscription has at most %d characters",
			maxNameChars)
	case s.view.SubscriptionCount(parent.ID) >= limits.Subscriptions:
		return nil, refuse(fsm.QuotaExceeded, "topic %q has %d subscriptions, the maximum", parent.Name,
			limits.Subscriptions)
	}
	if d.Rules == nil {
		d.Rules = []fsm.Rule{{Name: fsm.DefaultRuleName, Source: rule.Default()}}
	}
	given := d.Rules
	d.Rules = nil
	d.Parent = parent.ID
	for _, r := range given {
		r.CreatedAt = s.wall
		if o := s.checkRule(d, &r, nil, limits); o.Refusal != fsm.None {
			return nil, o
		}
		if d.Rule(r.Name) != nil {
			return nil, refuse(fsm.EntityExists, "rule %q is given twice", r.Name)
		}
		d.Rules = append(d.Rules, r)
	}
	return parent, fsm.Outcome{}
}

// putRule adds a rule or replaces the one with its name. The subscription gets a new version, which
// carries the rule to its shares (S-222).
func (s *State) putRule(c RulePut, limits Limits) fsm.Outcome {
	old := s.view.ByID(c.Entity)
	if old == nil || old.Kind != fsm.Subscription {
		return refuse(fsm.EntityNotFound, "subscription %d does not exist", c.Entity)
	}
	present := old.Rule(c.Rule.Name)
	switch {
	case c.New && c.Replace:
		return refuse(fsm.InvalidArgument, "a rule cannot be new and replace another")
	case c.New && present != nil:
		return refuse(fsm.EntityExists, "rule %q already exists", present.Name)
	case c.Replace && present == nil:
		return refuse(fsm.EntityNotFound, "rule %q does not exist", c.Rule.Name)
	}
	if o := s.checkRule(old, &c.Rule, present, &limits); o.Refusal != fsm.None {
		return o
	}
	d := *old
	d.Rules = slices.Clone(old.Rules)
	if present != nil {
		c.Rule.Name, c.Rule.CreatedAt = present.Name, present.CreatedAt
		*d.Rule(present.Name) = c.Rule
	} else {
		c.Rule.CreatedAt = s.wall
		d.Rules = append(d.Rules, c.Rule)
	}
	return s.revise(&d)
}

func (s *State) dropRule(c RuleDrop) fsm.Outcome {
	old := s.view.ByID(c.Entity)
	if old == nil || old.Kind != fsm.Subscription {
		return refuse(fsm.EntityNotFound, "subscription %d does not exist", c.Entity)
	}
	gone := old.Rule(c.Name)
	if gone == nil {
		return refuse(fsm.EntityNotFound, "rule %q does not exist", c.Name)
	}
	d := *old
	d.Rules = make([]fsm.Rule, 0, len(old.Rules)-1)
	for i := range old.Rules {
		if old.Rules[i].Name != gone.Name {
			d.Rules = append(d.Rules, old.Rules[i])
		}
	}
	return s.revise(&d)
}

// revise makes d the next version of its entity.
func (s *State) revise(d *fsm.Descriptor) fsm.Outcome {
	v := s.next()
	d.Version, d.UpdatedAt = v.version, s.wall
	v.put(d)
	s.view = v
	return fsm.Outcome{Data: encode(d)}
}

// checkRule checks a rule that is to take the place of another one of the subscription, nil if none.
func (s *State) checkRule(d *fsm.Descriptor, r, present *fsm.Rule, limits *Limits) fsm.Outcome {
	if r.Name == "" || !utf8.ValidString(r.Name) || utf8.RuneCountInString(r.Name) > maxNameChars {
		return refuse(fsm.InvalidArgument, "the name of a rule has 1 to %d characters", maxNameChars)
	}
	if _, err := r.Source.Compile(); err != nil {
		return refuse(fsm.InvalidArgument, "rule %q: %v", r.Name, err)
	}
	for _, text := range [...]string{r.Source.Expression, r.Source.Action} {
		if n := utf8.RuneCountInString(text); n > limits.RuleChars {
			return refuse(fsm.QuotaExceeded, "rule %q has a text of %d characters, maximum %d", r.Name, n,
				limits.RuleChars)
		}
	}
	size := ruleBytes(r)
	for i := range d.Rules {
		if present == nil || d.Rules[i].Name != present.Name {
			size += ruleBytes(&d.Rules[i])
		}
	}
	if size > maxRuleBytes {
		return refuse(fsm.QuotaExceeded, "the rules of %q take %d bytes, maximum %d", d.Name, size,
			maxRuleBytes)
	}
	most := map[rule.FilterKind]int{
		rule.SQLFilter: limits.SQLFilters, rule.CorrelationFilter: limits.CorrelationFilters,
	}[r.Source.Kind]
	if most == 0 || present != nil && present.Source.Kind == r.Source.Kind {
		return fsm.Outcome{}
	}
	if n := s.filters(d, r.Source.Kind); n >= most {
		return refuse(fsm.QuotaExceeded, "the topic has %d filters of this kind, the maximum", n)
	}
	return fsm.Outcome{}
}

// filters counts the filters of one kind of all the topic's subscriptions, and of d.
func (s *State) filters(d *fsm.Descriptor, kind rule.FilterKind) (n int) {
	count := func(d *fsm.Descriptor) bool {
		for i := range d.Rules {
			if d.Rules[i].Source.Kind == kind {
				n++
			}
		}
		return true
	}
	s.view.eachSubscription(d.Parent, func(other *fsm.Descriptor) bool {
		return other.ID == d.ID || count(other)
	})
	count(d)
	return n
}

func ruleBytes(r *fsm.Rule) int { return len(r.Name) + len(r.Source.Append(nil)) + 16 }
