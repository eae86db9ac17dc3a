package partition

import (
	"context"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Subscriptions returns up to top subscriptions of a topic after the first skip of them, by name
// without case; a negative top means all. It is linearizable like [Directory.List].
func (d *Directory) Subscriptions(ctx context.Context, topic *fsm.Descriptor, skip, top int) (
	[]*fsm.Descriptor, error) {
	if err := d.catchUp(ctx); err != nil {
		return nil, err
	}
	v := d.View()
	if v == nil {
		return nil, fmt.Errorf("no catalog on this node: %w", fsm.ErrUnavailable)
	}
	return v.Subscriptions(topic.ID, skip, top), nil
}

// PutRule adds a rule to the subscription with that id, or with replace puts it in the place of the
// one of its name. Every share knows it when PutRule returns: messages that are accepted from then on
// are judged by it (S-222).
func (d *Directory) PutRule(ctx context.Context, id fsm.EntityID, r fsm.Rule, replace bool) (
	*fsm.Descriptor, error) {
	return d.changeRules(ctx, r.Name, &catalog.Change{
		PutRule: &catalog.RulePut{Entity: id, Rule: r, New: !replace, Replace: replace},
		Limits:  d.limits(),
	})
}

// DropRule removes a rule of the subscription with that id (S-217, S-222).
func (d *Directory) DropRule(ctx context.Context, id fsm.EntityID, name string) (
	*fsm.Descriptor, error) {
	return d.changeRules(ctx, name, &catalog.Change{
		DropRule: &catalog.RuleDrop{Entity: id, Name: name},
	})
}

func (d *Directory) changeRules(ctx context.Context, name string, c *catalog.Change) (
	*fsm.Descriptor, error) {
	made, err := d.change(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	return made, d.announce(ctx, &fsm.PutEntity{Descriptor: *made}, made)
}
