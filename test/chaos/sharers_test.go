package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/check"
)

// copied is a history that can be changed without the other.
func copied(t *testing.T, h *check.History) *check.History {
	t.Helper()
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	out, err := check.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plants are violations, each made in the history of a run of real processes. A plant reports whether the
// history had what it needs. The checker of its name must find it.
var plants = map[string]func(h *check.History) bool{
	"I11 a former holder settles": func(h *check.History) bool {
		for _, o := range formers(h) {
			if o.Kind.Settles() {
				o.Outcome, o.Condition = check.OK, ""
				return true
			}
		}
		return false
	},
	"I11 a former holder sets the state": func(h *check.History) bool {
		for _, o := range formers(h) {
			if o.Kind == check.SetState {
				o.Outcome, o.Condition = check.OK, ""
				return true
			}
		}
		return false
	},
	"I11 a former holder is told that a message is gone": func(h *check.History) bool {
		for _, o := range formers(h) {
			if o.Kind.Settles() {
				o.Condition = "com.microsoft:message-lock-lost"
				return true
			}
		}
		return false
	},
	"I7 two holders settle a delivery": func(h *check.History) bool {
		for _, o := range formers(h) {
			for _, p := range h.Ops {
				if o.Kind.Settles() && p.Ok() && p.Kind.Settles() && p.Message.Token == o.Message.Token {
					o.Outcome, o.Condition = check.OK, ""
					return true
				}
			}
		}
		return false
	},
	"I12 the present holder gets two messages the wrong way round": func(h *check.History) bool {
		last := map[int]*check.Op{}
		for _, o := range h.Ops {
			if o.Kind != check.Receive || o.Entity != sharedQueue || o.Sub != check.InMain || o.Message.Attempts > 0 {
				continue
			}
			if a := last[o.Holder]; a != nil && a.Return < o.Invoke {
				a.Message, o.Message = o.Message, a.Message
				return true
			}
			last[o.Holder] = o
		}
		return false
	},
	"I1 a message is lost": func(h *check.History) bool {
		for _, o := range h.Ops {
			if o.Kind == check.Complete && o.Ok() && o.Entity == sharedQueue {
				id := o.Message.ID
				for _, p := range h.Ops {
					if p.Kind == check.Complete && p.Message.ID == id {
						p.Outcome = check.Failed
					}
				}
				return true
			}
		}
		return false
	},
}

// findsPlants fails the test unless the judge finds every violation that is planted into the history of a run,
// and found none before.
func findsPlants(t *testing.T, o *outcome) {
	t.Helper()
	h := o.world.rec.History()
	for name, plant := range plants {
		changed := copied(t, h)
		if !plant(changed) {
			t.Errorf("%s: the run has nothing to plant it into", name)
			continue
		}
		invariant, _, _ := strings.Cut(name, " ")
		if !slices.ContainsFunc(check.CheckAll(changed), func(v check.Violation) bool { return v.Invariant == invariant }) {
			t.Errorf("%s: the judge does not find it", name)
		}
	}
}

// A run whose sharers never met does not count.
func TestARunWithoutTakeOversDoesNotCount(t *testing.T) {
	var s sharedCounts
	if err := s.enough(0); err == nil {
		t.Error("a run without take-overs counts")
	}
	s.takeOvers.Store(3)
	s.settled.Store(3)
	s.refused.Store(2)
	if err := s.enough(90e9); err != nil {
		t.Error(err)
	}
	if err := s.enough(150e9); err == nil {
		t.Error("two refusals in two and a half minutes count")
	}
}
