package catalog

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// moveOf returns the move of an entity, and fails the test if there is none.
func (w *world) moveOf(d *fsm.Descriptor) Rehoming {
	w.t.Helper()
	r, ok := w.s.View().Rehoming(d.ID)
	if !ok {
		w.t.Fatal("nothing moves")
	}
	return r
}

func (w *world) rehomed(r Rehoming, step RehomingStep) *fsm.Descriptor {
	w.t.Helper()
	return w.must(Change{Rehomed: &RehomeStep{ID: r.ID, Epoch: r.Epoch, Step: step, Why: "because"}})
}

// One entry decides which home serves. A step of a move that is over changes nothing, and each may come again.
func TestAShareMovesInOneChangeOfItsDescription(t *testing.T) {
	w := newWorld(t)
	d := w.must(Change{Create: queue("q")})
	from := d.Partitions[0]
	to := from%3 + 1
	w.must(Change{Rehome: &Rehome{ID: d.ID, Moves: []ShareMove{{To: to}}}})
	r := w.moveOf(d)
	if r.Step != RehomingCopy || r.From != from || r.To != to || r.Epoch != w.s.View().Version() || r.Since == 0 {
		t.Fatalf("%+v", r)
	}
	w.refused(Change{Rehome: &Rehome{ID: d.ID, Moves: []ShareMove{{To: to}}}}, fsm.Busy)
	w.refused(Change{Rehomed: &RehomeStep{ID: d.ID, Epoch: r.Epoch}}, fsm.InvalidOperation)
	w.refused(Change{Rehomed: &RehomeStep{ID: d.ID, Epoch: r.Epoch - 1, Step: RehomingOpen}}, fsm.InvalidOperation)
	updated := queue("q")
	updated.MaxDelivery = 7
	w.must(Change{Update: updated}) // a change meanwhile is kept
	now := w.rehomed(r, RehomingOpen)
	if !slices.Equal(now.Partitions, []fsm.PartitionID{to}) || now.Prefixes != nil || !slices.Equal(now.Origins, d.Partitions) ||
		now.Version != w.s.View().Version() || now.MaxDelivery != 7 {
		t.Fatalf("%+v", now)
	}
	if again := w.rehomed(r, RehomingOpen); again.Version != now.Version {
		t.Error("the same step again made another description")
	}
	w.refused(Change{Rehomed: &RehomeStep{ID: d.ID, Epoch: r.Epoch, Step: RehomingBack}}, fsm.InvalidOperation)
	w.rehomed(r, "")
	if _, moves := w.s.View().Rehoming(d.ID); moves {
		t.Error("the move is not over")
	}
	w.refused(Change{Rehomed: &RehomeStep{ID: d.ID, Epoch: r.Epoch, Step: RehomingOpen}}, fsm.InvalidOperation)
	if after := w.must(Change{Update: queue("q")}); !slices.Equal(after.Partitions, now.Partitions) || !slices.Equal(after.Origins, now.Origins) {
		t.Errorf("an update forgot the move: %+v", after)
	}
}

// A move that is given up leaves the description as it was, and tells why. The next one has another epoch.
func TestAMoveIsGivenUp(t *testing.T) {
	w := newWorld(t)
	d := w.must(Change{Create: queue("q")})
	to := d.Partitions[0]%3 + 1
	w.must(Change{Rehome: &Rehome{ID: d.ID, Moves: []ShareMove{{To: to}}}})
	r := w.moveOf(d)
	w.rehomed(r, RehomingBack)
	w.refused(Change{Rehomed: &RehomeStep{ID: d.ID, Epoch: r.Epoch, Step: RehomingOpen}}, fsm.InvalidOperation)
	w.rehomed(r, "")
	if failed := w.moveOf(d); failed.Active() || failed.Why != "because" {
		t.Errorf("%+v", failed)
	}
	if now := w.s.View().ByID(d.ID); !reflect.DeepEqual(now, d) {
		t.Errorf("%+v, was %+v", now, d)
	}
	w.must(Change{Rehome: &Rehome{ID: d.ID, Moves: []ShareMove{{To: to}}}})
	if next := w.moveOf(d); next.Epoch <= r.Epoch || !next.Active() {
		t.Errorf("%+v behind %+v", next, r)
	}
	w.must(Change{Delete: &Deletion{ID: d.ID}})
	if all := w.s.View().Rehomings(); len(all) > 0 {
		t.Errorf("moves of a deleted entity: %+v", all)
	}
}

// Shares of a partitioned queue move one after the other, and keep their prefixes. An image has moves.
func TestSharesMoveOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	q := queue("q")
	q.Partitioned = true
	d := w.must(Change{Create: q})
	w.must(Change{Place: &Placement{Groups: []Group{{ID: 4, Members: []fsm.NodeID{"a"}}, {ID: 5, Members: []fsm.NodeID{"a"}}}}})
	w.must(Change{Rehome: &Rehome{ID: d.ID, Moves: []ShareMove{{Share: 2, To: 5}, {Share: 0, To: 4}}}})
	for i, want := range [][]fsm.PartitionID{{1, 2, 5}, {4, 2, 5}} {
		r := w.moveOf(d)
		var image bytes.Buffer
		if _, err := w.s.Capture().WriteTo(&image); err != nil {
			t.Fatal(err)
		}
		if err := w.s.Restore(&image); err != nil || w.moveOf(d).Epoch != r.Epoch {
			t.Fatalf("the image has %+v, %v", w.s.View().Rehomings(), err)
		}
		now := w.rehomed(r, RehomingOpen)
		if !slices.Equal(now.Partitions, want) || !slices.Equal(now.Prefixes, d.Partitions) || !slices.Equal(now.Origins, d.Partitions) {
			t.Errorf("move %d: %v, prefixes %v, origins %v", i, now.Partitions, now.Prefixes, now.Origins)
		}
		w.rehomed(r, "")
	}
	if len(w.s.View().Rehomings()) > 0 {
		t.Errorf("%+v", w.s.View().Rehomings())
	}
}

func TestImpossibleMovesAreRefused(t *testing.T) {
	w := newWorld(t)
	d := w.must(Change{Create: queue("q")})
	topic := queue("t")
	topic.Kind = fsm.Topic
	to := w.must(Change{Create: topic})
	other := d.Partitions[0]%3 + 1
	for name, c := range map[string]struct {
		c    Rehome
		want fsm.Refusal
	}{
		"no entity":          {Rehome{ID: 99, Moves: []ShareMove{{To: other}}}, fsm.EntityNotFound},
		"a topic":            {Rehome{ID: to.ID, Moves: []ShareMove{{To: 1}}}, fsm.InvalidOperation},
		"no move":            {Rehome{ID: d.ID}, fsm.InvalidArgument},
		"no such share":      {Rehome{ID: d.ID, Moves: []ShareMove{{Share: 1, To: other}}}, fsm.InvalidArgument},
		"a share below zero": {Rehome{ID: d.ID, Moves: []ShareMove{{Share: -1, To: other}}}, fsm.InvalidArgument},
		"no such partition":  {Rehome{ID: d.ID, Moves: []ShareMove{{To: 9}}}, fsm.InvalidArgument},
		"where it is":        {Rehome{ID: d.ID, Moves: []ShareMove{{To: d.Partitions[0]}}}, fsm.InvalidArgument},
		"a share twice":      {Rehome{ID: d.ID, Moves: []ShareMove{{To: other}, {To: other%3 + 1}}}, fsm.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.refused(Change{Rehome: &c.c}, c.want)
		})
	}
}

// The plan takes from the fullest partition and gives to the emptiest, as long as that makes them more alike.
func TestSharesAreSpreadOverTheEmptiestPartitions(t *testing.T) {
	w := newWorld(t)
	var in1 []*fsm.Descriptor
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		if d := w.must(Change{Create: queue(name)}); d.Partitions[0] == 1 {
			in1 = append(in1, d)
		}
	}
	if moves := w.s.View().PlanRehome(in1[0]); len(moves) > 0 {
		t.Errorf("level partitions: %v", moves)
	}
	w.must(Change{Place: &Placement{Groups: []Group{{ID: 4, Members: []fsm.NodeID{"a"}}}}})
	if moves := w.s.View().PlanRehome(in1[0]); !slices.Equal(moves, []ShareMove{{Share: 0, To: 4}}) {
		t.Errorf("an empty partition: %v", moves)
	}
	q := queue("whole")
	q.Partitioned = true
	whole := w.must(Change{Create: q})
	w.must(Change{Place: &Placement{Groups: []Group{{ID: 5, Members: []fsm.NodeID{"a"}}, {ID: 6, Members: []fsm.NodeID{"a"}}}}})
	moves := w.s.View().PlanRehome(whole)
	if len(moves) != 2 || moves[0].To == moves[1].To || moves[0].Share == moves[1].Share || moves[0].To < 5 || moves[1].To < 5 {
		t.Errorf("two empty partitions: %v", moves)
	}
}
