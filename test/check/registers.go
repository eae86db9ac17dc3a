package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// porcupineLimit bounds the search for one order of operations; it is exponential in the operations whose outcome is
// unknown. A history that is not decided in time counts as no violation.
const porcupineLimit = 20 * time.Second

// linear asks porcupine whether operations can be put in an order that the model allows. Operations
// that may or may not have happened end after everything; the model must allow them to do nothing.
func linear(m porcupine.Model, ops []*Op) bool {
	list := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		list[i] = porcupine.Operation{ClientId: i, Input: o, Call: o.Invoke, Output: o, Return: o.End()}
	}
	return porcupine.CheckOperationsTimeout(m, list, porcupineLimit) != porcupine.Illegal
}

// none is the state of a session that has none.
const none = "-"

// stateModel is a register that holds text; a write of unknown outcome may never have happened, which
// is the same as happening after everything that reads.
var stateModel = porcupine.Model{
	Init: func() any { return none },
	Step: func(state, input, output any) (bool, any) {
		o := input.(*Op)
		if o.Kind == SetState {
			return true, o.State
		}
		return output.(*Op).State == state.(string), state
	},
	Equal: func(a, b any) bool { return a == b },
}

// I13: the state of a session is a linearizable register.
func sessionState(v *view) []Violation {
	r := report{name: "I13"}
	groups := map[[2]string][]*Op{}
	for _, o := range v.Ops {
		if o.Kind == SetState && o.Maybe() || o.Kind == GetState && o.Ok() {
			k := [2]string{o.Entity, o.Session}
			groups[k] = append(groups[k], o)
		}
	}
	for k, ops := range groups {
		if !linear(stateModel, ops) {
			slices.SortFunc(ops, byInvoke)
			r.add(firstBad(stateModel, ops), "the state of session %q was read as it never was", k[1])
		}
	}
	return r.list
}

func byInvoke(a, b *Op) int { return cmp.Compare(a.Invoke, b.Invoke) }

// firstBad returns the shortest beginning of a history that is not linearizable, or the last
// operations of it.
func firstBad(m porcupine.Model, ops []*Op) []*Op {
	n := 1 + sortSearch(len(ops), func(n int) bool { return !linear(m, ops[:n+1]) })
	n = min(n, len(ops))
	return ops[max(0, n-8):n]
}

// sortSearch is the least n below size for which f holds, or size.
func sortSearch(size int, f func(int) bool) int {
	lo, hi := 0, size
	for lo < hi {
		mid := (lo + hi) / 2
		if f(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// entityState is what the catalog may hold under one name.
type entityState struct {
	id    uint64
	label string
}

// entityModel is one name of the catalog. A create gives a new incarnation, a label comes with
// creation and updates, and a refusal tells the state too.
var entityModel = porcupine.Model{
	Init: func() any { return entityState{} },
	Step: func(state, input, output any) (bool, any) {
		s, o := state.(entityState), output.(*Op)
		exists := s.id != 0
		switch o.Kind {
		case Create:
			if o.Outcome == Failed {
				return exists, s
			}
			if exists {
				return o.Outcome == Unknown, s // it happened to be refused
			}
			id := o.EntityID
			if o.Outcome == Unknown {
				id = unknownID
			}
			return true, entityState{id, o.Label}
		case Update:
			if o.Outcome == Failed {
				return !exists, s
			}
			if !exists {
				return o.Outcome == Unknown, s
			}
			return true, entityState{s.id, o.Label}
		case Delete:
			if o.Outcome == Failed {
				return !exists, s
			}
			if !exists {
				return o.Outcome == Unknown, s
			}
			return true, entityState{}
		}
		if o.EntityID == 0 {
			return !exists, s
		}
		return exists && (s.id == unknownID || s.id == o.EntityID) && s.label == o.Label, s
	},
	Equal: func(a, b any) bool { return a == b },
}

// unknownID is the number of an entity whose creation nobody was told of.
const unknownID = ^uint64(0)

// I21: creating, changing, deleting and asking for an entity are linearizable.
func entities(v *view) []Violation {
	r := report{name: "I21"}
	groups := map[string][]*Op{}
	for _, o := range v.Ops {
		switch o.Kind {
		case Create, Update, Delete:
			groups[o.Entity] = append(groups[o.Entity], o)
		case Get:
			if o.Ok() {
				groups[o.Entity] = append(groups[o.Entity], o)
			}
		}
	}
	for name, ops := range groups {
		if !linear(entityModel, ops) {
			slices.SortFunc(ops, byInvoke)
			r.add(firstBad(entityModel, ops), "entity %q was never as somebody was told", name)
		}
	}
	return r.list
}
