package replica

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// heapBodies keeps bodies in memory, by where they are. What is not in it was freed, or is lost.
type heapBodies struct {
	brittleBodies
	kept map[fsm.BodyRef]bool
}

func (b heapBodies) Read(index uint64, offset, length uint32) ([]byte, error) {
	if !b.kept[fsm.BodyRef{Index: index, Offset: offset, Length: length}] {
		return nil, fs.ErrNotExist
	}
	return make([]byte, length), nil
}

// busyQueue is a state in use. While an audit restores its image, a client receives a message and sends another one.
type busyQueue struct {
	*fsm.State
	bodies heapBodies
	index  uint64
}

func newBusyQueue(t *testing.T) *busyQueue {
	t.Helper()
	q := &busyQueue{State: fsm.New(1), bodies: heapBodies{kept: map[fsm.BodyRef]bool{}}}
	q.do(t, &fsm.BecomeLeader{Node: "n1"})
	q.do(t, &fsm.PutEntity{Descriptor: fsm.Descriptor{ID: 9, Name: "q", Kind: fsm.Queue, Version: 1,
		Partitions: []fsm.PartitionID{1}, LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20,
		MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited}})
	q.send(t)
	return q
}

// do applies one command.
func (q *busyQueue) do(t *testing.T, c fsm.Command) fsm.Result {
	t.Helper()
	q.index++
	e := &fsm.Entry{Epoch: 1, Requests: []fsm.Request{{Entity: 9, Command: c}}}
	if q.index == 1 {
		e.Epoch = 0
	}
	r := q.Apply(q.index, e)
	if r.Outcomes[0].Refusal != fsm.None {
		t.Fatalf("%T: %+v", c, r.Outcomes[0])
	}
	for _, ref := range r.Freed {
		delete(q.bodies.kept, ref)
	}
	return r
}

func (q *busyQueue) send(t *testing.T) {
	t.Helper()
	q.bodies.kept[fsm.BodyRef{Index: q.index + 1, Length: 3}] = true
	q.do(t, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("abc")}}})
}

// meanwhile is an empty state that lets clients work while it is filled.
type meanwhile struct {
	*fsm.State
	clients func()
}

func (m meanwhile) Restore(r io.Reader) error {
	m.clients()
	return m.State.Restore(r)
}

// I16: a message that a client has received since the state was frozen is no problem. One that is there without its body is.
func TestARecountUnderLoadFindsNothing(t *testing.T) {
	q := newBusyQueue(t)
	clients := func() {
		q.do(t, &fsm.Lock{Max: 1, Delete: true})
		q.send(t)
	}
	cfg := Defaults()
	r := &Replica{cfg: &cfg, machine: &machine{m: q}, stores: Stores{Bodies: q.bodies},
		empty: func() Machine { return meanwhile{fsm.New(1), clients} }}
	if a, err := r.Audit(t.Context()); err != nil || len(a.Problems) > 0 || a.Messages != 1 {
		t.Errorf("a queue in use: %+v, %v", a, err)
	}
	clients = func() {}
	clear(q.bodies.kept)
	if a, err := r.Audit(t.Context()); err != nil || len(a.Problems) != 1 || !strings.Contains(a.Problems[0], "message") {
		t.Errorf("a body is lost: %+v, %v", a, err)
	}
}

// I16: a replica that gets a snapshot has its state first and the bodies later. It is not recounted in between.
func TestNothingIsRecountedWhileASnapshotIsRestored(t *testing.T) {
	q := newBusyQueue(t)
	cfg := Defaults()
	r := &Replica{cfg: &cfg, machine: &machine{m: q, restoring: true}, stores: Stores{Bodies: brittleBodies{}},
		empty: func() Machine { return fsm.New(1) }}
	if a, err := r.Audit(t.Context()); !errors.Is(err, fsm.ErrUnavailable) || len(a.Problems) > 0 {
		t.Errorf("without the bodies: %+v, %v, want to be asked again", a, err)
	}
}
