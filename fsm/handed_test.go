package fsm

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestASessionKnowsWhatIsLockedInIt does random steps in two sessions, some in transactions that are refused, and
// compares what each session has as locked with a list.
func TestASessionKnowsWhatIsLockedInIt(t *testing.T) {
	for seed := range uint64(20) {
		w := newHandedWalk(t, seed)
		for i := range 300 {
			w.step(i)
			w.check(i)
		}
	}
}

// handedWalk drives two sessions and remembers for each what is locked in it.
type handedWalk struct {
	*driver
	t      *testing.T
	rng    *rand.Rand
	held   [2]SessionProof
	locked [2][]Delivery
}

var handedIDs = [2]string{"a", "b"}

func newHandedWalk(t *testing.T, seed uint64) *handedWalk {
	w := &handedWalk{driver: newDriver(t), t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	w.ok(0, Main, queue(7, withSessions, func(d *Descriptor) { d.MaxDelivery = 1 << 20 }))
	return w
}

func (w *handedWalk) step(i int) {
	n := w.rng.IntN(2)
	switch op := w.rng.IntN(20); {
	case op < 6:
		w.ok(7, Main, &Enqueue{Messages: []Message{inSession("a"), inSession("b"), inSession("a"), inSession("b")}})
	case op == 6:
		w.s.Capture()
	case w.held[n].Token.IsZero():
		w.held[n] = w.ok(7, Main, &AcceptSession{ID: handedIDs[n]}).Session
	case op < 11:
		got := w.ok(7, Main, &Lock{Max: uint32(1 + w.rng.IntN(9)), Session: w.held[n]}).Locked
		w.locked[n] = append(w.locked[n], got...)
	case op == 11:
		w.ok(7, Main, &ReleaseSession{Session: w.held[n], Orderly: true})
		w.held[n], w.locked[n] = SessionProof{}, nil
	case op == 12:
		w.after(6000)
		w.apply(Request{Command: &Tick{}})
		w.held, w.locked = [2]SessionProof{}, [2][]Delivery{}
	case len(w.locked[n]) > 0:
		w.settle(n, op < 16)
	}
}

// settle settles one of the locked messages at random, or lets a transaction that does so be refused.
func (w *handedWalk) settle(n int, refused bool) {
	k := w.rng.IntN(len(w.locked[n]))
	c := settle(w.locked[n][k].Token, []Verdict{Complete, Abandon, Defer, Kill}[w.rng.IntN(4)])
	c.Session = w.held[n]
	if !refused {
		if r := w.ok(7, Main, c).Refusals[0]; r != None {
			w.t.Fatalf("refusal %d", r)
		}
		w.locked[n] = slices.Delete(w.locked[n], k, k+1)
		return
	}
	wrong := &Settle{Session: w.held[n], Items: []SettleItem{{Token: LockToken{1}, Verdict: Complete}}}
	o := w.do(0, Main, &Commit{Ops: []Op{{Entity: 7, Command: c}, {Entity: 7, Command: wrong}}})
	if o.Refusal != TransactionAborted {
		w.t.Fatalf("refusal %d", o.Refusal)
	}
}

func (w *handedWalk) check(i int) {
	w.t.Helper()
	if err := w.s.CheckInvariants(); err != nil {
		w.t.Fatalf("step %d: %v", i, err)
	}
	sh, _ := w.s.shares.Get(7)
	for n, id := range handedIDs {
		var got, want []SequenceNumber
		for _, m := range w.locked[n] {
			want = append(want, m.Seq)
		}
		slices.Sort(want)
		sh.lookup(id).eachLocked(0, func(arrival uint64) bool {
			got = append(got, sh.number(arrival))
			return true
		})
		if !slices.Equal(got, want) {
			w.t.Fatalf("step %d: locked in %s are %v, want %v", i, id, got, want)
		}
	}
}
