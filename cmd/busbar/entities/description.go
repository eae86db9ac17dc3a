package entities

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// The kinds of entities, as the management API calls them.
const (
	Queue        = "Queue"
	Topic        = "Topic"
	Subscription = "Subscription"
)

// Property is one element of a description and its text.
type Property struct{ Name, Value string }

// Description is what the management API says of an entity.
type Description struct {
	Kind string // [Queue], [Topic] or [Subscription]
	Path string // of a subscription: topic/Subscriptions/name
	*dial.Element
}

// SubscriptionPath is the path of a subscription.
func SubscriptionPath(topic, name string) string { return topic + "/Subscriptions/" + name }

// SplitSubscription takes the path of a subscription apart; ok is false for another path.
func SplitSubscription(path string) (topic, name string, ok bool) {
	const middle = "/subscriptions/"
	at := strings.LastIndex(strings.ToLower(path), middle)
	if at <= 0 || at+len(middle) == len(path) || strings.Contains(path[at+len(middle):], "/") {
		return path, "", false
	}
	return path[:at], path[at+len(middle):], true
}

// describe gives an entry its path; nil if it describes no entity.
func describe(e dial.Entry, path string) *Description {
	if e.Content == nil {
		return nil
	}
	kind := strings.TrimSuffix(e.Content.XMLName.Local, "Description")
	if !slices.Contains([]string{Queue, Topic, Subscription}, kind) {
		return nil
	}
	if e.Title != "" && kind == Subscription {
		if topic, _, ok := SplitSubscription(path); ok {
			path = SubscriptionPath(topic, e.Title)
		}
	} else if e.Title != "" {
		path = e.Title
	}
	return &Description{Kind: kind, Path: path, Element: e.Content}
}

// Get returns the entity at a path, nil if there is none.
func Get(ctx context.Context, m *dial.Management, path string) (*Description, error) {
	e, err := m.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	return describe(e, path), nil
}

// MustGet is Get with an error of the code [exit.NotFound] if there is none.
func MustGet(ctx context.Context, m *dial.Management, path string) (*Description, error) {
	d, err := Get(ctx, m, path)
	if err == nil && d == nil {
		err = exit.With(exit.NotFound, fmt.Errorf("there is no %s", path))
	}
	return d, err
}

// List returns all queues, all topics, or all subscriptions of a topic.
func List(ctx context.Context, m *dial.Management, kind, topic string) ([]*Description, error) {
	feed := "$Resources/" + kind + "s"
	if kind == Subscription {
		feed = topic + "/Subscriptions"
	}
	entries, err := m.List(ctx, feed)
	if err != nil {
		return nil, err
	}
	var all []*Description
	for _, e := range entries {
		path := e.Title
		if kind == Subscription {
			path = SubscriptionPath(topic, e.Title)
		}
		if d := describe(e, path); d != nil {
			all = append(all, d)
		}
	}
	return all, nil
}

// ListAll returns every entity: queues, and topics with their subscriptions behind them.
func ListAll(ctx context.Context, m *dial.Management) ([]*Description, error) {
	all, err := List(ctx, m, Queue, "")
	if err != nil {
		return nil, err
	}
	topics, err := List(ctx, m, Topic, "")
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		below, err := List(ctx, m, Subscription, t.Path)
		if err != nil {
			return nil, err
		}
		all = append(append(all, t), below...)
	}
	return all, nil
}

// Property returns the text of a property or of an option, "" if the description has none.
func (d *Description) Property(name string) string {
	if isOption(name) {
		return d.Child("Options").Value(name)
	}
	return d.Value(name)
}

// Count returns one of the counters, such as ActiveMessageCount; known is false where not all partitions answered.
func (d *Description) Count(name string) (n int64, known bool) {
	n, err := strconv.ParseInt(d.Child("CountDetails").Value(name), 10, 64)
	return n, err == nil
}

// Create makes an entity with the properties that are given; the broker chooses the others. first is the rule that a
// subscription is made with, nil for one that selects every message.
func Create(ctx context.Context, m *dial.Management, kind, path string, set []Property, first *Rule) (*Description, error) {
	e, err := m.Create(ctx, path, kind+"Description", elements(set, firstRule(first)))
	if err != nil {
		return nil, err
	}
	return describe(e, path), nil
}

// firstRule writes the rule that a subscription is made with, "" for nil.
func firstRule(r *Rule) string {
	if r == nil {
		return ""
	}
	return "<DefaultRuleDescription>" + r.XML() + "</DefaultRuleDescription>"
}

// Changes are those of set that d does not have already.
func Changes(d *Description, set []Property) (changes []Property) {
	for _, p := range set {
		if !sameValue(p.Name, d.Property(p.Name), p.Value) {
			changes = append(changes, p)
		}
	}
	return changes
}

// Update changes some properties of an entity and keeps the others. The service replaces a description as a whole, so
// the rest of d is sent with it. A change by somebody else between the reading of d and this call is taken back.
func Update(ctx context.Context, m *dial.Management, d *Description, set []Property) (*Description, error) {
	changed := map[string]bool{}
	for _, p := range set {
		changed[p.Name] = true
	}
	all := slices.Clone(set)
	for _, name := range append(namesOf(d.Kind), "IsAnonymousAccessible") {
		if value := d.current(name); value != "" && !changed[name] {
			all = append(all, Property{name, value})
		}
	}
	keys := ""
	if rules := d.Child("AuthorizationRules"); rules != nil {
		keys = "<AuthorizationRules>" + rules.Inner + "</AuthorizationRules>"
	}
	e, err := m.Update(ctx, d.Path, d.Kind+"Description", elements(all, keys))
	if err != nil {
		return nil, err
	}
	return describe(e, d.Path), nil
}

// current is the value of a property as an update takes it.
func (d *Description) current(name string) string {
	value := d.Value(name)
	switch {
	case strings.HasPrefix(name, "Forward"):
		return TargetOf(value)
	case name == "MaxSizeInMegabytes" && d.Value("EnablePartitioning") == "true":
		return divided(value)
	}
	return value
}

// elements writes the elements of a description: the properties, what more is given as XML, and the options.
func elements(set []Property, more string) string {
	var out, options strings.Builder
	for _, p := range set {
		if isOption(p.Name) {
			options.WriteString(dial.Tag(p.Name, p.Value))
			continue
		}
		out.WriteString(dial.Tag(p.Name, p.Value))
	}
	return out.String() + more + dial.OptionsTag(options.String())
}

// RulePath is the path of a rule of a subscription.
func RulePath(subscription, name string) string { return subscription + "/Rules/" + name }

// Rules returns the rules of a subscription, by name.
func Rules(ctx context.Context, m *dial.Management, subscription string) ([]dial.Entry, error) {
	return m.List(ctx, subscription+"/Rules")
}

// CreateRule adds a rule to a subscription.
func CreateRule(ctx context.Context, m *dial.Management, subscription string, r *Rule) (dial.Entry, error) {
	return m.Create(ctx, RulePath(subscription, r.Name), ruleElement, r.XML())
}

// UpdateRule replaces a rule of a subscription.
func UpdateRule(ctx context.Context, m *dial.Management, subscription string, r *Rule) (dial.Entry, error) {
	return m.Update(ctx, RulePath(subscription, r.Name), ruleElement, r.XML())
}
