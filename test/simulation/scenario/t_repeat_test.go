package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// T-242; S-280, S-298, S-307
func TestT242ARepeatedRequestTellsTheTruth(t *testing.T) {
	rounds := size("T-242", "leader crashes", 1000, 15)
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Hour))
		var expected fsm.EntityCounts
		last := fsm.SequenceNumber(0) // that was given out
		var held fsm.Delivery
		var due fsm.SequenceNumber
		for i := range rounds {
			var c fsm.Command
			body := fsm.Message{Body: emptyStored(), MessageID: fmt.Sprint(i)}
			switch i % 5 {
			case 0:
				c = &fsm.Enqueue{Messages: []fsm.Message{body}}
			case 1:
				c = &fsm.Lock{Max: 1}
			case 2:
				c = &fsm.Settle{Items: []fsm.SettleItem{{Token: held.Token, Verdict: fsm.Complete}}}
			case 3:
				body.ScheduledAt = fsm.Wall(time.Now().Add(1000 * time.Hour).UnixMilli())
				c = &fsm.Enqueue{Messages: []fsm.Message{body}}
			case 4:
				c = &fsm.Cancel{Numbers: []fsm.SequenceNumber{due}}
			}
			o := b.proposeTwice(fsm.RequestID{Node: 99, Pump: 1, Counter: uint64(i + 1)}, c,
				time.Duration(i%12)*400*time.Microsecond)
			want(b, fmt.Sprintf("refusal of %T", c), o.Refusal, fsm.None)
			switch i % 5 {
			case 0:
				last++
				expected.Active++
				want(b, "number", o.Numbers[0]&(1<<48-1), last)
			case 1:
				held = o.Locked[0]
				expected.Locked++
				want(b, "locked messages", len(o.Locked), 1)
				want(b, "the locked message", held.Seq&(1<<48-1), last)
			case 2:
				expected.Active--
				expected.Locked--
			case 3:
				last++
				due = o.Numbers[0]
				expected.Scheduled++
				want(b, "number of the scheduled one", due&(1<<48-1), last)
			case 4:
				expected.Scheduled--
			}
			n := b.counts("q")
			n.SizeBytes, n.AccessedAt, n.Dropped = 0, 0, fsm.Drops{}
			want(b, fmt.Sprintf("counters behind %T", c), n, expected)
		}
	})
}

// proposeTwice proposes a request, kills the leader a moment later, and proposes the same request again. It
// returns the second answer.
func (b *bench) proposeTwice(id fsm.RequestID, c fsm.Command, moment time.Duration) fsm.Outcome {
	b.Helper()
	leader := b.lab.Leader(1)
	via := (leader + 1) % 3
	done := b.later(func() error { _ = b.proposeAt(via, "q", id, c); return nil })
	b.pass(moment)
	b.lab.Crash(leader, true)
	b.must("propose", <-done)
	o := b.proposeAt(via, "q", id, c)
	b.must("start", b.lab.Start(leader))
	b.must("serve", b.lab.Settled())
	return o
}
