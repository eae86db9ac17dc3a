package scenario

import (
	"fmt"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-342, S-138: a batch of tiny messages is one entry, stored whole or not at all, whatever becomes of the leader
// or of the node that has the client's connection.
func TestABatchOfTinyMessagesIsWholeOrNotThere(t *testing.T) {
	const n = 50_000
	envelope := &goamqp.Message{Format: 0x80013700}
	for i := range n {
		envelope.Data = append(envelope.Data, amqp.AppendData(nil, fmt.Append(nil, i)))
	}
	for _, at := range []struct {
		name   string
		point  simulation.Point
		home   bool // the client is connected to the leader, which crashes
		stored int  // -1: all or nothing
	}{
		{"the leader crashes before it writes the entry", simulation.BeforeStored, false, n},
		{"the leader crashes when it has applied the entry", simulation.AfterApplied, false, n},
		{"the client's node crashes before it writes the entry", simulation.BeforeStored, true, -1},
		{"the client's node crashes when it has applied the entry", simulation.AfterApplied, true, n},
	} {
		t.Run(at.name, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 1 << 20 })
				leader := b.lab.Leader(1)
				home := (leader + 1) % 3
				if at.home {
					home = leader
				}
				c := b.clientAt(home)
				c.send("q", "before")
				s := c.sender("q")
				applied := b.lab.Applied(leader, 1)
				down := b.lab.CrashAt(1, at.point, applied+1)
				err := s.try(envelope)
				<-down
				b.lab.Disarm()
				if !at.home {
					b.must("send", err)
				} else if err == nil {
					b.Fatal("the send was acknowledged by a node that is gone")
				}
				b.must("lead", b.lab.Led())
				stored := int(b.counts("q").Active) - 1
				if stored != at.stored && (at.stored >= 0 || stored != 0 && stored != n) {
					b.Fatalf("%d messages of the batch are stored, want %d of %d", stored, at.stored, n)
				}
				next := b.survivor()
				next.send("q", "behind")
				for _, i := range []int{0, stored / 2, stored - 1} {
					if i < 0 || stored == 0 {
						continue
					}
					got := next.peek("q", int64(2+i), 1)
					want(b, "message", got[0].text(), fmt.Sprint(i))
				}
				last := next.peek("q", int64(stored+2), 10)
				want(b, "behind the batch", len(last), 1)
				want(b, "last", last[0].text(), "behind")
			})
		})
	}
}
