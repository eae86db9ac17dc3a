package model

import (
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

var (
	seed      = flag.Uint64("seed", 1, "seed of the first sequence")
	sequences = flag.Int("sequences", 1000, "how many sequences, each with the next seed")
	steps     = flag.Int("steps", 60, "entries per sequence")
	duration  = flag.Duration("for", 0, "go on with further sequences for so long, whatever -sequences says")
)

// T-14, T-66, T-193, T-198, T-223, T-228, T-229, T-251, T-264 // S-214, S-217, S-232, S-233, S-12, S-19, S-20, S-79, S-95, S-96, S-119, S-188, S-201, S-245,
// S-206, S-209, S-212, S-213, S-236, S-237, S-263, S-272, S-274 to S-276, S-281, S-282, S-288, S-311: whatever comes in whatever
// order, the state machine does what the model does, restored or not.
func TestStateAgreesWithTheModel(t *testing.T) {
	var wg sync.WaitGroup
	next := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := range next {
				if err := sequence(n, *steps, faithful); err != nil {
					t.Error(err)
				}
			}
		})
	}
	began, n := time.Now(), uint64(0)
	for ; !t.Failed() && (n < uint64(*sequences) || time.Since(began) < *duration); n++ {
		next <- *seed + n
	}
	close(next)
	wg.Wait()
	t.Logf("seeds %d to %d", *seed, *seed+n-1)
}

// caught reports whether some of 4000 sequences notices what f does wrong. Most faults are seen within a hundred; the more kinds
// of commands there are, the rarer is each.
func caught(f func() apply) bool {
	for n := range uint64(4000) {
		if sequence(n+1, 80, f()) != nil {
			return true
		}
	}
	return false
}

// changing applies other commands than were asked for.
func changing(f func(fsm.Command) fsm.Command) apply {
	return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
		other := *e
		other.Requests = append([]fsm.Request(nil), e.Requests...)
		for i := range other.Requests {
			other.Requests[i].Command = f(other.Requests[i].Command)
		}
		return s.Apply(index, &other)
	}
}

// A tier that cannot fail proves nothing: each of these faults must be found.
func TestPlantedFaultsAreFound(t *testing.T) {
	faults := map[string]func() apply{
		"a settlement is lost": func() apply {
			left := 5
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				c, ok := e.Requests[0].Command.(*fsm.Settle)
				if !ok || len(e.Requests) > 1 {
					return s.Apply(index, e)
				}
				if left--; left != 0 {
					return s.Apply(index, e)
				}
				lost := *e
				lost.Requests = []fsm.Request{{Command: &fsm.Barrier{}}}
				r := s.Apply(index, &lost)
				r.Outcomes[0].Refusals = make([]fsm.Refusal, len(c.Items))
				return r
			}
		},
		"any token takes a session over": func() apply {
			var last fsm.LockToken
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				r := changing(func(c fsm.Command) fsm.Command {
					a, ok := c.(*fsm.AcceptSession)
					if !ok || a.Presented.IsZero() {
						return c
					}
					again := *a
					again.Presented = last
					return &again
				})(s, index, e)
				for i := range r.Outcomes {
					if t := r.Outcomes[i].Shared; !t.IsZero() {
						last = t
					}
				}
				return r
			}
		},
		"who was taken over keeps what was not sent": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				if r, ok := c.(*fsm.ReleaseSession); ok {
					return &fsm.ReleaseSession{Session: r.Session, Orderly: r.Orderly}
				}
				return c
			})
		},
		"a take-over looks like an accept": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				if a, ok := c.(*fsm.AcceptSession); ok && a.Shared {
					return &fsm.AcceptSession{ID: a.ID, Next: a.Next, Wait: a.Wait}
				}
				return c
			})
		},
		"a lease runs too fast": func() apply {
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				fast := *e
				fast.Lease += e.Lease / 50
				return s.Apply(index, &fast)
			}
		},
		"a wake is forgotten": func() apply {
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				r := s.Apply(index, e)
				if len(r.Wake) == 2 {
					r.Wake = r.Wake[:1]
				}
				return r
			}
		},
		"a body is freed too early": func() apply {
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				r := s.Apply(index, e)
				if o := r.Outcomes[0]; index > 30 && len(o.Locked) > 0 {
					r.Freed = append(r.Freed, o.Locked[0].Ref)
				}
				return r
			}
		},
		"a part of a body is freed too early": func() apply {
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				r := s.Apply(index, e)
				if o := r.Outcomes[0]; len(o.Locked) > 0 && len(o.Locked[0].Rest) > 0 {
					r.Freed = append(r.Freed, o.Locked[0].Rest[0])
				}
				return r
			}
		},
		"an upload that nobody uses is kept": func() apply {
			staged := map[fsm.BodyRef]bool{}
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				r := s.Apply(index, e)
				for _, q := range e.Requests {
					if c, ok := q.Command.(*fsm.BodyPart); ok {
						staged[fsm.BodyRef{Index: index, Offset: c.BodyOffset, Length: uint32(len(c.Body))}] = true
					}
				}
				if _, ok := e.Requests[0].Command.(*fsm.Tick); ok {
					r.Freed = slices.DeleteFunc(r.Freed, func(ref fsm.BodyRef) bool { return staged[ref] })
				}
				return r
			}
		},
		"a listener is not heard": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				if _, ok := c.(*fsm.Tick); ok {
					return &fsm.Tick{}
				}
				return c
			})
		},
		"a duplicate is not noticed": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.Enqueue)
				if !ok {
					return c
				}
				blank := &fsm.Enqueue{Messages: append([]fsm.Message(nil), e.Messages...)}
				for i := range blank.Messages {
					blank.Messages[i].MessageID = ""
				}
				return blank
			})
		},
		"a rule selects too much": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.PutEntity)
				if !ok || e.Descriptor.Kind != fsm.Subscription {
					return c
				}
				all := *e
				all.Descriptor.Rules = []fsm.Rule{{Name: "all", Source: rule.Default()}}
				return &all
			})
		},
		"an aborted transaction keeps its first operation": func() apply {
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				c, ok := e.Requests[0].Command.(*fsm.Commit)
				if !ok || len(e.Requests) > 1 || len(c.Ops) < 2 {
					return s.Apply(index, e)
				}
				short := *e
				short.Requests = []fsm.Request{e.Requests[0]}
				short.Requests[0].Command = &fsm.Commit{Ops: c.Ops[:1]}
				r := s.Apply(index, &short)
				if r.Outcomes[0].Refusal == fsm.None {
					r.Outcomes[0] = fsm.Outcome{Refusal: fsm.TransactionAborted, Ops: r.Outcomes[0].Ops}
				}
				return r
			}
		},
		"a message has another number than its reserved one": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.Enqueue)
				if !ok || e.Origin == nil {
					return c
				}
				again := *e
				again.Messages = slices.Clone(e.Messages)
				for i := range again.Messages {
					again.Messages[i].Reserved = 0
				}
				return &again
			})
		},
		"a transfer goes somewhere else": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.Transfer)
				if !ok || e.To == 0 {
					return c
				}
				return &fsm.Transfer{To: e.To + 1, Messages: e.Messages}
			})
		},
		"a move that arrived does not end": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.Forward)
				if !ok {
					return c
				}
				again := *e
				again.Done = nil
				return &again
			})
		},
		"a pause is too short": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.Settle)
				if !ok {
					return c
				}
				short := &fsm.Settle{Session: e.Session, Items: append([]fsm.SettleItem(nil), e.Items...)}
				for i := range short.Items {
					if d := &short.Items[i].Delay; *d > 1 {
						*d /= 2
					}
				}
				return short
			})
		},
		"a moved message is taken twice": func() apply {
			entity := fsm.EntityID(1000)
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.Enqueue)
				if !ok || e.Origin == nil {
					return c
				}
				entity++
				other := *e.Origin
				other.Entity = entity
				return &fsm.Enqueue{Messages: e.Messages, Origin: &other}
			})
		},
		"chance takes more off a pause than it may": func() apply {
			return changing(func(c fsm.Command) fsm.Command {
				e, ok := c.(*fsm.PutEntity)
				if !ok {
					return c
				}
				again := *e
				if j := &again.Descriptor.RetryBackoff.Jitter; *j == 30 {
					*j = 90
				}
				return &again
			})
		},
		"what expires is forgotten when a Tick is full": func() apply {
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				_, wake := s.NextDeadline()
				_, now := s.Clocks()
				if _, ok := e.Requests[0].Command.(*fsm.Tick); ok && wake != 0 && wake <= now {
					none := *e
					none.Requests = []fsm.Request{{Command: &fsm.Barrier{}}}
					s.TickAtMost(1 << 20)
					return s.Apply(index, &none)
				}
				return s.Apply(index, e)
			}
		},
		"an image loses what came after it": func() apply {
			var old *fsm.State
			return func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
				if index > 40 && old == nil {
					old = s
					none := *e
					none.Requests = make([]fsm.Request, len(e.Requests))
					for i := range none.Requests {
						none.Requests[i].Command = &fsm.Barrier{}
					}
					return s.Apply(index, &none)
				}
				return s.Apply(index, e)
			}
		},
	}
	for what, f := range faults {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			if !caught(f) {
				t.Errorf("nobody notices that %s", what)
			}
		})
	}
}
