package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// machine is what replicas of the witness tests apply to.
type machine interface {
	Apply(index uint64, e *fsm.Entry) fsm.Result
}

// wrongly is a state machine with a fault.
type wrongly struct {
	*fsm.State
	result func(index uint64, r *fsm.Result)
}

func (w *wrongly) Apply(index uint64, e *fsm.Entry) fsm.Result {
	r := w.State.Apply(index, e)
	w.result(index, &r)
	return r
}

// script is a small log: two messages sent, one locked and completed.
func script(t *testing.T) []*fsm.Entry {
	t.Helper()
	d := fsm.Descriptor{ID: 1, Version: 1, Kind: fsm.Queue, Name: "q", Partitions: []fsm.PartitionID{1},
		LockDuration: 10_000, MaxDelivery: 3, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30,
		DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited, DuplicateWindow: 600_000}
	request := func(pump, counter uint64, c fsm.Command) fsm.Request {
		return fsm.Request{ID: fsm.RequestID{Node: 9, Pump: pump, Counter: counter}, Entity: 1, Command: c}
	}
	var out []*fsm.Entry
	add := func(epoch uint64, q ...fsm.Request) {
		n := fsm.Wall(1000 * (len(out) + 1))
		e := &fsm.Entry{Wall: n, Lease: fsm.Lease(n), Epoch: epoch, Requests: q}
		e.Seed[0] = byte(len(out) + 1)
		d, err := fsm.DecodeEntry(fsm.AppendEntry(nil, e))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	add(0, fsm.Request{Command: &fsm.BecomeLeader{Node: "n1"}})
	add(1, fsm.Request{Entity: 1, Command: &fsm.PutEntity{Descriptor: d}})
	add(1, request(1, 1, &fsm.Enqueue{Messages: []fsm.Message{{MessageID: "m1", Body: []byte("x")}}}))
	add(1, request(1, 2, &fsm.Enqueue{Messages: []fsm.Message{{MessageID: "m2", Body: []byte("y")}}}))
	add(1, request(2, 1, &fsm.Lock{Max: 1, MaxBytes: 1 << 20}))
	return out
}

// settled ends the script: it needs the token that the lock gave.
func settled(t *testing.T, list []*fsm.Entry) (out []*fsm.Entry, token string) {
	t.Helper()
	s := fsm.New(1)
	var r fsm.Result
	for i, e := range list {
		r = s.Apply(uint64(i+1), e)
	}
	d := r.Outcomes[0].Locked[0]
	e := &fsm.Entry{Wall: 9000, Lease: 9000, Epoch: 1, Requests: []fsm.Request{{
		ID: fsm.RequestID{Node: 9, Pump: 2, Counter: 2}, Entity: 1,
		Command: &fsm.Settle{Items: []fsm.SettleItem{{Seq: d.Seq, Token: d.Token, Verdict: fsm.Complete}}},
	}}}
	return append(list, e), d.Token.String()
}

func play(w *Witness, who string, m machine, list []*fsm.Entry) {
	for i, e := range list {
		r := m.Apply(uint64(i+1), e)
		w.Applied(who, 1, uint64(i+1), e, &r)
	}
	if s, ok := m.(*fsm.State); ok {
		w.Digested(who, 1, uint64(len(list)), s.Digest())
	}
}

// told is what the clients of the script were told.
func told(token string) *History {
	g := get(2, 3, "m1", 1, token)
	h := left(history(send(0, 1, "m1"), send(1.5, 2, "m2"), g, settle(4, 5, Complete, g)),
		Message{ID: "m2", Seq: 2})
	return h
}

func TestAnHonestWitnessIsBelieved(t *testing.T) {
	list, token := settled(t, script(t))
	w := NewWitness()
	play(w, "n1.1", fsm.New(1), list)
	play(w, "n2.1", fsm.New(1), list)
	if got := w.Check(told(token)); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if c := Cover(told(token), w); c[Elections] != 1 || c[Deliveries] != 1 {
		t.Errorf("coverage %v", c)
	}
}

// S-232: what a transaction stored and settled counts as stored and settled, and in the order of the log.
func TestWhatATransactionDidIsNoted(t *testing.T) {
	list, token := settled(t, script(t))
	settle := list[len(list)-1].Requests[0].Command
	commit := &fsm.Commit{ID: []byte("t"), Ops: []fsm.Op{{Entity: 1, Command: settle}, {Entity: 1,
		Command: &fsm.Enqueue{Messages: []fsm.Message{{MessageID: "m3", Body: []byte("z")}}}}}}
	last := list[len(list)-1]
	last.Requests[0].Command = commit
	last, err := fsm.DecodeEntry(fsm.AppendEntry(nil, last))
	if err != nil {
		t.Fatal(err)
	}
	list[len(list)-1] = last
	judged := func(ops ...*Op) []string {
		t.Helper()
		w := NewWitness()
		play(w, "n1.1", fsm.New(1), list)
		h := told(token)
		h.Ops = append(h.Ops, ops...)
		return names(w.Check(left(h, Message{ID: "m3", Seq: 3})))
	}
	if got := judged(send(4, 5, "m3")); len(got) != 0 {
		t.Errorf("accused of %v", got)
	}
	if got := judged(failed(send(4, 5, "m3"), "not-allowed")); !slices.Equal(got, []string{"I2"}) {
		t.Errorf("a send that was refused and committed: %v", got)
	}
	if got := judged(send(0, 0.5, "m3")); !slices.Contains(got, "I3") {
		t.Errorf("a send that ended before those in front of it in the log began: %v", got)
	}
}

// Each lie of a log is told by the invariant that it breaks.
func TestLyingWitnessesAreCaught(t *testing.T) {
	full, token := settled(t, script(t))
	both := func(result func(uint64, *fsm.Result)) func(*Witness) {
		return func(w *Witness) { play(w, "n1.1", &wrongly{fsm.New(1), result}, full) }
	}
	for name, c := range map[string]struct {
		want string
		play func(w *Witness)
		told *History
	}{
		"two replicas apply different entries": {want: "I24", play: func(w *Witness) {
			other := slices.Clone(full)
			other[3] = full[2]
			play(w, "n1.1", fsm.New(1), full)
			play(w, "n2.1", fsm.New(1), other)
		}},
		"two replicas do different things": {want: "I24", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), full)
			both(func(i uint64, r *fsm.Result) {
				if i == 3 {
					r.Outcomes[0].Numbers[0]++
				}
			})(w)
		}},
		"states differ": {want: "I24", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), full)
			w.Digested("n2.1", 1, uint64(len(full)), 1)
		}},
		"a store holds something else": {want: "I24", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), full)
			w.Stored("n2.1", 1, 3, fsm.AppendEntry(nil, full[1]))
		}},
		"an acknowledged send is in no log": {want: "I1", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), slices.Delete(slices.Clone(full), 3, 4))
		}},
		"an acknowledged settlement is in no log": {want: "I7", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), full[:len(full)-1])
		}},
		"a refused send is in a log": {want: "I2", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), full)
		}, told: func() *History {
			h := told(token)
			failed(h.Ops[1], "not-allowed")
			return h
		}()},
		"a later send comes first in the log": {want: "I3", play: func(w *Witness) {
			play(w, "n1.1", fsm.New(1), full)
		}, told: func() *History {
			h := told(token)
			h.Ops[0].Message.ID, h.Ops[1].Message.ID = "m2", "m1"
			return h
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWitness()
			c.play(w)
			h := c.told
			if h == nil {
				h = told(token)
			}
			got := names(w.Check(h))
			if !slices.Contains(got, c.want) {
				t.Errorf("caught by %v, want %s", got, c.want)
			}
		})
	}
}

// A state machine that is wrong in the same way everywhere is caught by the model, by the audit, or
// by its clocks.
func TestAWrongStateMachineIsCaughtByTheModel(t *testing.T) {
	full, _ := settled(t, script(t))
	for name, c := range map[string]struct {
		want string
		make func() replayer
	}{
		"numbers begin at two": {"I19", func() replayer {
			return &broken{State: fsm.New(1), result: func(r *fsm.Result) {
				for i := range r.Outcomes {
					for j := range r.Outcomes[i].Numbers {
						r.Outcomes[i].Numbers[j]++
					}
				}
			}}
		}},
		"a completed message is not freed": {"I19", func() replayer {
			return &broken{State: fsm.New(1), result: func(r *fsm.Result) { r.Freed = nil }}
		}},
		"time goes back": {"I23", func() replayer {
			return &broken{State: fsm.New(1), back: true}
		}},
		"a counter is wrong": {"I16", func() replayer {
			return &broken{State: fsm.New(1), audit: errStop}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWitness()
			m := c.make()
			for i, e := range full {
				r := m.Apply(uint64(i+1), e)
				w.Applied("n1.1", 1, uint64(i+1), e, &r)
			}
			var list []Violation
			for _, l := range w.Logs() {
				list = append(list, l.replay(newReplayed(), c.make())...)
			}
			if got := names(list); !slices.Equal(got, []string{c.want}) {
				t.Errorf("caught by %v, want %s: %v", got, c.want, list)
			}
		})
	}
}

// broken is a state machine that is wrong on every replica alike.
type broken struct {
	*fsm.State
	result func(*fsm.Result)
	back   bool
	count  int
	audit  error
}

func (b *broken) Apply(index uint64, e *fsm.Entry) fsm.Result {
	r := b.State.Apply(index, e)
	if b.result != nil {
		b.result(&r)
	}
	return r
}

func (b *broken) Clocks() (wall fsm.Wall, lease fsm.Lease) {
	wall, lease = b.State.Clocks()
	if b.count++; b.back && b.count == 4 {
		return wall - 1500, lease
	}
	return wall, lease
}

func (b *broken) CheckInvariants() error { return b.audit }

func TestBriefTellsWhatAnEntryIsAbout(t *testing.T) {
	list := script(t)
	if got := Brief(fsm.AppendEntry(nil, list[2])); !strings.Contains(got, "*fsm.Enqueue(9/1/1 e1)") {
		t.Errorf("got %s", got)
	}
	if got := Brief([]byte("x")); got == "" {
		t.Error("damaged bytes say nothing")
	}
}
