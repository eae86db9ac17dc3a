package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

func (w *world) topicWith(subscriptions ...string) []*fsm.Descriptor {
	w.t.Helper()
	list := []*fsm.Descriptor{w.must(Change{Create: &fsm.Descriptor{Kind: fsm.Topic, Name: "t"}})}
	for _, name := range subscriptions {
		list = append(list, w.must(Change{Create: subscription("t/Subscriptions/" + name)}))
	}
	return list
}

func subscription(name string) *fsm.Descriptor {
	d := queue(name)
	d.Kind = fsm.Subscription
	return d
}

func sqlRule(name, expression string) fsm.Rule {
	return fsm.Rule{Name: name, Source: rule.Source{Kind: rule.SQLFilter, Expression: expression}}
}

// S-215: a subscription without given rules has $Default; one with rules has those.
func TestANewSubscriptionHasARule(t *testing.T) {
	w := newWorld(t)
	s := w.topicWith("s")[1]
	if len(s.Rules) != 1 || s.Rules[0].Name != "$Default" || s.Rules[0].Source.Kind != rule.TrueFilter ||
		s.Rules[0].CreatedAt == 0 {
		t.Errorf("%+v", s.Rules)
	}
	d := subscription("t/subscriptions/own")
	d.Rules = []fsm.Rule{sqlRule("first", "a = 1")}
	if got := w.must(Change{Create: d}); len(got.Rules) != 1 || got.Rules[0].Name != "first" {
		t.Errorf("%+v", got.Rules)
	}
	d = subscription("t/subscriptions/twice")
	d.Rules = []fsm.Rule{sqlRule("r", "a = 1"), sqlRule("R", "a = 2")}
	w.refused(Change{Create: d}, fsm.EntityExists)
	d.Rules = []fsm.Rule{sqlRule("r", "a = ")}
	w.refused(Change{Create: d}, fsm.InvalidArgument)
}

// S-222, S-217: a change of rules is a new version of the subscription, and an update keeps them.
func TestRulesArePutAndDropped(t *testing.T) {
	w := newWorld(t)
	s := w.topicWith("s")[1]
	put := func(r fsm.Rule, isNew, replace bool) Change {
		return Change{PutRule: &RulePut{Entity: s.ID, Rule: r, New: isNew, Replace: replace}}
	}
	one := w.must(put(sqlRule("Cheap", "price < 5"), true, false))
	if len(one.Rules) != 2 || one.Version <= s.Version || one.Rules[1].CreatedAt == 0 {
		t.Fatalf("%+v", one)
	}
	w.refused(put(sqlRule("cheap", "price < 6"), true, false), fsm.EntityExists)
	w.refused(put(sqlRule("dear", "price > 6"), false, true), fsm.EntityNotFound)
	w.refused(put(sqlRule("dear", "price >"), false, false), fsm.InvalidArgument)
	w.refused(put(sqlRule("dear", "1=1"), true, true), fsm.InvalidArgument)
	w.refused(put(sqlRule("", "1=1"), true, false), fsm.InvalidArgument)
	w.refused(put(sqlRule(strings.Repeat("x", 51), "1=1"), true, false), fsm.InvalidArgument) // S-228
	two := w.must(put(sqlRule("CHEAP", "price < 6"), false, true))
	if r := two.Rule("cheap"); r.Name != "Cheap" || r.Source.Expression != "price < 6" || r.CreatedAt != one.Rules[1].CreatedAt {
		t.Errorf("%+v", r)
	}
	if one.Rules[1].Source.Expression != "price < 5" {
		t.Error("the version before has changed")
	}
	up := subscription("t/Subscriptions/s")
	up.LockDuration = 7000
	if got := w.must(Change{Update: up}); len(got.Rules) != 2 || got.LockDuration != 7000 {
		t.Errorf("%+v", got)
	}
	w.refused(Change{DropRule: &RuleDrop{Entity: s.ID, Name: "none"}}, fsm.EntityNotFound)
	w.refused(Change{DropRule: &RuleDrop{Entity: 99, Name: "none"}}, fsm.EntityNotFound)
	w.refused(Change{PutRule: &RulePut{Entity: s.Parent, Rule: sqlRule("r", "1=1")}}, fsm.EntityNotFound)
	w.must(Change{DropRule: &RuleDrop{Entity: s.ID, Name: "$default"}})
	if got := w.must(Change{DropRule: &RuleDrop{Entity: s.ID, Name: "cheap"}}); len(got.Rules) != 0 {
		t.Errorf("%+v", got.Rules)
	}
}

// T-210 // S-229, S-228: each limit is reached and the next one refused.
func TestLimitsOfTopics(t *testing.T) {
	w := newWorld(t)
	w.topicWith()
	for i := range MaxSubscriptions {
		w.must(Change{Create: subscription(fmt.Sprint("t/Subscriptions/s", i))})
	}
	w.refused(Change{Create: subscription("t/Subscriptions/more")}, fsm.QuotaExceeded)
	w.refused(Change{Create: subscription("t/Subscriptions/" + strings.Repeat("x", 51))}, fsm.InvalidArgument)
	first := w.s.View().Entity("t/subscriptions/s0")
	big := sqlRule("big", "a IN ('"+strings.Repeat("x", 900)+"')")
	for i := 0; ; i++ {
		big.Name = fmt.Sprint("r", i)
		o := w.apply((&Change{PutRule: &RulePut{Entity: first.ID, Rule: big}}).Command())
		if o.Refusal == fsm.QuotaExceeded && i > 1000 {
			break
		}
		if o.Refusal != fsm.None || i > 2000 {
			t.Fatalf("rule %d: %v %s", i, o.Refusal, o.Detail)
		}
	}
	if n := w.s.View().SubscriptionCount(first.Parent); n != MaxSubscriptions {
		t.Errorf("%d subscriptions", n)
	}
}

// S-229: as many entities as a namespace may have, and one more.
func TestLimitOfEntities(t *testing.T) {
	w := newWorld(t)
	for i := range MaxEntities {
		w.must(Change{Create: queue(fmt.Sprint("q", i))})
	}
	w.refused(Change{Create: queue("more")}, fsm.QuotaExceeded)
	w.must(Change{Delete: &Deletion{ID: w.s.View().Entity("q7").ID}})
	w.must(Change{Create: queue("more")})
}

// Listing and deleting by topic; a topic may be called like another one's subscription path.
func TestSubscriptionsBelongToTheirTopic(t *testing.T) {
	w := newWorld(t)
	list := w.topicWith("a", "b", "c")
	w.must(Change{Create: &fsm.Descriptor{Kind: fsm.Topic, Name: "t2"}})
	w.must(Change{Create: subscription("T2/subscriptions/a")})
	v := w.s.View()
	if got := v.Subscriptions(list[0].ID, 1, 1); len(got) != 1 || got[0].Name != "t/Subscriptions/b" {
		t.Errorf("%+v", got)
	}
	if n := len(v.Subscriptions(list[0].ID, 0, -1)); n != 3 || v.SubscriptionCount(list[0].ID) != 3 || v.SubscriptionCount(999) != 0 {
		t.Errorf("%d subscriptions", n)
	}
	w.must(Change{Delete: &Deletion{ID: list[0].ID}})
	v = w.s.View()
	if v.Entity("t/subscriptions/a") != nil || v.Entity("t2/Subscriptions/a") == nil {
		t.Error("the wrong subscriptions are gone")
	}
}

// T-190, T-194 // S-207, S-210: where an entity may forward to, when it is set.
func TestForwardingIsCheckedWhenItIsSet(t *testing.T) {
	w := newWorld(t)
	w.topicWith("s")
	w.must(Change{Create: queue("dest")})
	try := func(change func(*fsm.Descriptor)) Change {
		d := queue("src")
		change(d)
		return Change{Create: d}
	}
	w.refused(try(func(d *fsm.Descriptor) { d.ForwardTo = "missing" }), fsm.EntityNotFound)
	w.refused(try(func(d *fsm.Descriptor) { d.ForwardDeadLettersTo = "sb://host/missing" }), fsm.EntityNotFound)
	w.refused(try(func(d *fsm.Descriptor) { d.ForwardTo, d.Kind = "SRC", fsm.Topic }), fsm.InvalidOperation)
	w.refused(try(func(d *fsm.Descriptor) { d.ForwardTo = "t/Subscriptions/s" }), fsm.InvalidOperation)
	w.refused(try(func(d *fsm.Descriptor) { d.ForwardTo, d.RequiresSession = "dest", true }), fsm.InvalidOperation)
	w.refused(try(func(d *fsm.Descriptor) { d.ForwardTo, d.Kind = "dest", fsm.Topic }), fsm.InvalidOperation)
	// RUL-24: an entity forwards to itself, a subscription to its own topic.
	itself := queue("Itself")
	itself.ForwardTo, itself.ForwardDeadLettersTo = "sb://host/itself", "ITSELF"
	w.must(Change{Create: itself})
	own := subscription("t/Subscriptions/loop")
	own.ForwardTo = "T"
	w.must(Change{Create: own})
	src := w.must(try(func(d *fsm.Descriptor) { d.ForwardTo, d.ForwardDeadLettersTo = "sb://host.test/Dest/", "t" }))
	w.must(Change{Delete: &Deletion{ID: w.s.View().Entity("dest").ID}})
	src.LockDuration = 9000
	w.must(Change{Update: src}) // S-209: what was set stays set
	for text, want := range map[string]string{"q": "q", "sb://h/a/b": "a/b", "amqps://h:5671/q/": "q", "/q": "q", "sb://h": ""} {
		if got := Destination(text); got != want {
			t.Errorf("%q leads to %q, want %q", text, got, want)
		}
	}
}

// S-257, A22: what is idle is deleted only in the version that was seen, a topic with its subscriptions.
func TestDeleteIfIdle(t *testing.T) {
	w := newWorld(t)
	d := queue("q")
	d.AutoDeleteOnIdle = 300_000
	q := w.must(Change{Create: d})
	idle := func(id fsm.EntityID, version uint64) Change {
		return Change{DeleteIfIdle: &IdleDeletion{ID: id, Version: version}}
	}
	w.refused(idle(q.ID, q.Version-1), fsm.InvalidOperation)
	w.refused(idle(99, 1), fsm.EntityNotFound)
	stays := w.must(Change{Create: queue("stays")})
	w.refused(idle(stays.ID, stays.Version), fsm.InvalidOperation)
	w.must(idle(q.ID, q.Version))
	if w.s.View().Entity("q") != nil {
		t.Error("it is still there")
	}
}
