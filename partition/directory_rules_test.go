package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// S-222: a rule that is set through one node is known to the topic's partition when that is answered,
// and seen through every node.
func TestRulesAreKnownWhenAnswered(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) {
		ctx := shortly(t, time.Minute)
		on, via := b.all[b.ids[0]], b.all[b.ids[1]]
		topic := queue("t", false)
		topic.Kind = fsm.Topic
		made, err := on.dir.Create(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		sub := queue("t/Subscriptions/s", false)
		sub.Kind = fsm.Subscription
		s, err := via.dir.Create(ctx, sub)
		if err != nil || s.Rule(fsm.DefaultRuleName) == nil {
			t.Fatalf("created as %+v, %v", s, err)
		}
		const sql = 1 // the kind of a SQL filter, a word of another room
		r := *s.Rule(fsm.DefaultRuleName)
		r.Name, r.Source.Kind, r.Source.Expression = "r", sql, "a = 1"
		with, err := on.dir.PutRule(ctx, s.ID, r, false)
		if err != nil || with.Rule("R") == nil || with.Version <= s.Version {
			t.Fatalf("put: %+v, %v", with, err)
		}
		var refused *fsm.RefusedError
		if _, err := via.dir.PutRule(ctx, s.ID, r, false); !errors.As(err, &refused) ||
			refused.Refusal != fsm.EntityExists {
			t.Errorf("put again: %v", err)
		}
		r.Source.Expression = "a = 2"
		if _, err := via.dir.PutRule(ctx, s.ID, r, true); err != nil {
			t.Errorf("replace: %v", err)
		}
		for _, id := range b.ids {
			all, err := b.all[id].dir.Subscriptions(ctx, made, 0, -1)
			if err != nil || len(all) != 1 || all[0].Rule("r").Source.Expression != "a = 2" {
				t.Errorf("through %s: %+v, %v", id, all, err)
			}
		}
		if _, err := on.dir.DropRule(ctx, s.ID, "r"); err != nil {
			t.Errorf("drop: %v", err)
		}
		if _, err := via.dir.DropRule(ctx, s.ID, "r"); !errors.Is(err, fsm.ErrNoEntity) {
			t.Errorf("drop again: %v", err)
		}
		if all, err := via.dir.Subscriptions(ctx, made, 1, 5); err != nil || len(all) != 0 {
			t.Errorf("past the end: %v, %v", all, err)
		}
	})
}
