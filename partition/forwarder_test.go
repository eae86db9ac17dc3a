package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// forwarderOf is a forwarder of an entity's main queue, where its partition is led.
func (b *brokers) forwarderOf(d *fsm.Descriptor, via fsm.NodeID) *forwarder {
	b.t.Helper()
	r := b.leader(d.Partitions[0])
	epoch, ok := r.Led()
	if !ok {
		b.t.Fatal("nobody leads")
	}
	return &forwarder{src: source{d.ID, fsm.Main}, epoch: epoch, rep: r, dir: b.all[via].dir, wake: make(chan struct{}, 1),
		targets: map[targetKey]*target{}}
}

// behind has the catalog of a node stand still.
func (b *brokers) behind(id fsm.NodeID) {
	b.net.Swallow(func(_, to fsm.NodeID, kind uint8, msg []byte) bool {
		if to != id || kind != KindRaft {
			return false
		}
		call, err := raftnet.ParseCall(msg)
		return err == nil && call.Group == fsm.CatalogPartition
	})
}

// S-206, S-211: messages whose destination could not be looked up for a while keep their place before later ones. None is
// refused for that.
func TestMessagesOfAnUnknownDestinationStayInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		from := b.createQueue(t.Context(), "n1", queue("source", false))
		via := b.others(b.leader(fsm.CatalogPartition).Node())[0]
		b.behind(via)
		to := b.createQueue(t.Context(), b.others(via)[0], queue("destination", false))
		f := b.forwarderOf(from, via)
		if f.dir.View().ByID(to.ID) != nil {
			t.Fatal("the catalog of the node is not behind: the test shows nothing")
		}
		unreachable, cancel := context.WithCancel(t.Context())
		cancel()
		ctx := shortly(t, time.Minute)
		if err := f.resume(ctx); err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"a", "b", "c"} {
			asks := ctx
			if i == 0 {
				asks = unreachable
			}
			f.hold(asks, []fsm.Delivery{{Body: storedForm(nil, text)}}, []fsm.Move{{Number: uint64(i + 1), To: to.ID}})
		}
		for range 3 {
			f.attempt(ctx)
			time.Sleep(time.Second)
		}
		for _, m := range f.done {
			if m.Refusal != fsm.None {
				t.Errorf("message %d is refused: %v %s", m.Number, m.Refusal, m.Detail)
			}
		}
		b.net.Swallow(nil)
		b.arrives(to, fsm.Main, time.Minute, "a", "b", "c")
	})
}

// alone is a cluster whose source forwards, with "waits" in it. Nothing but the forwarder that it returns acts for the
// partition of the source, and no change of the catalog gets there.
func alone(t *testing.T) (b *brokers, from *fsm.Descriptor, f *forwarder) {
	b = newBrokers(t, 3)
	b.createQueue(t.Context(), "n1", queue("destination", false))
	src := queue("source", false)
	src.ForwardTo = "destination"
	from = b.createQueue(t.Context(), "n1", src)
	at := b.leader(from.Partitions[0]).Node()
	b.all[at].sup.Close()
	b.put(t.Context(), from, reqOf(0, 1, 1), "waits")
	return b, from, b.forwarderOf(from, at)
}

// S-206: a message that comes between the end of forwarding in the catalog and in its queue stays in the queue.
func TestTheEndOfForwardingRefusesNoMessage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, f := alone(t)
		defer b.close()
		plain := *from
		plain.ForwardTo = ""
		if _, err := f.dir.change(t.Context(), &catalog.Change{Update: &plain}); err != nil {
			t.Fatal(err)
		}
		b.until("the catalog knows", func() string { return f.dir.View().ByID(from.ID).ForwardTo })
		if err := f.run(shortly(t, time.Minute)); !errors.Is(err, errNothing) {
			t.Errorf("the forwarder ends with %v", err)
		}
		b.arrives(from, fsm.DeadLetter, time.Second)
		b.arrives(from, fsm.Main, time.Second, "waits")
	})
}

// A forwarder whose source the catalog does not have any more ends: it would hold one of the places of its partition.
func TestAForwarderEndsWithItsSource(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, f := alone(t)
		defer b.close()
		if _, err := f.dir.change(t.Context(), &catalog.Change{Delete: &catalog.Deletion{ID: from.ID}}); err != nil {
			t.Fatal(err)
		}
		b.until("the catalog knows", func() string {
			if f.dir.View().ByID(from.ID) != nil {
				return "not yet"
			}
			return ""
		})
		ended := make(chan error, 1)
		go func() { ended <- f.run(shortly(t, 10*time.Minute)) }()
		time.Sleep(time.Second)
		if _, err := f.rep.Propose(t.Context(), fsm.Request{Entity: from.ID, Command: &fsm.DropEntity{}}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errNothing) {
			t.Errorf("the forwarder ends with %v", err)
		}
	})
}

// S-311: a destination knows a source by the same name to the end, though the source moved to another partition and was
// deleted while an answer about a message was lost.
func TestASourceThatMovedAndIsDeletedKeepsItsName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 2 })
		defer b.close()
		b.wantVersion("n1", fsm.NewestVersion)
		to := b.createQueue(t.Context(), "n1", queue("destination", false))
		from := b.createQueue(t.Context(), "n1", queue("source", false))
		b.rehome("n1", 3-from.Partitions[0], "source")
		from, err := b.all["n1"].dir.Get(t.Context(), "source")
		if err != nil {
			t.Fatal(err)
		}
		f := b.forwarderOf(from, "n1")
		ctx := shortly(t, time.Minute)
		if err := f.resume(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			f.hold(ctx, []fsm.Delivery{{Body: storedForm(nil, "once")}}, []fsm.Move{{Number: 1, To: to.ID}})
			f.attempt(ctx)
			if f.held > 0 {
				t.Fatal("the destination was not reached")
			}
			b.arrives(to, fsm.Main, time.Second, "once")
			if err := b.all["n1"].dir.Delete(ctx, "source"); err != nil && !errors.Is(err, fsm.ErrNoEntity) {
				t.Fatal(err)
			}
		}
	})
}

// watched is a context that calls a function each time somebody asks whether it is over.
type watched struct {
	context.Context
	asked func()
}

func (w watched) Err() error { w.asked(); return nil }

// S-206: a queue that begins to forward while its mover looks through the queues is moved at once. The wake-up may come
// behind the look at that queue.
func TestAWakeUpDuringAScanIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		src := queue("source", false)
		b.createQueue(t.Context(), "n1", queue("destination", false))
		src.ForwardTo = "destination"
		from := b.createQueue(t.Context(), "n1", src)
		rep := b.leader(from.Partitions[0])
		m := &mover{rep: rep, tasks: map[source]chan struct{}{}, waits: map[source]struct{}{}}
		for i := range maxForwarders { // no place is free, so what is woken waits for one
			m.tasks[source{entity: fsm.EntityID(1<<40 + i)}] = make(chan struct{}, 1)
		}
		m.ctx = watched{t.Context(), func() { m.woken([]fsm.WaitKey{{Entity: from.ID, Kind: fsm.WaitMessage}}) }}
		m.scan(b.all[rep.Node()].dir.View())
		if _, waits := m.waits[source{from.ID, fsm.Main}]; !waits {
			t.Error("the wake-up was not heard")
		}
	})
}

// S-206: sources that can move nothing keep nobody from moving. As many as a partition moves at a time have a destination
// without a majority, and another one has a destination that takes messages.
func TestSourcesThatMoveNothingMakePlace(t *testing.T) {
	simulatesLong(t)
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		ctx := shortly(t, time.Hour)
		stuck := b.createQueue(ctx, "n1", queue("stuck", false))
		home := stuck.Partitions[0]
		open := b.createQueue(ctx, "n1", queue("open", false))
		for i := 0; open.Partitions[0] == home; i++ {
			open = b.createQueue(ctx, "n1", queue(fmt.Sprint("open", i), false))
		}
		sources := map[string][]*fsm.Descriptor{}
		for i := 0; len(sources[stuck.Name]) < maxForwarders || len(sources[open.Name]) < 1; i++ {
			src := queue(fmt.Sprint("source", i), false)
			src.ForwardTo = stuck.Name
			if len(sources[stuck.Name]) >= maxForwarders {
				src.ForwardTo = open.Name
			}
			if d := b.createQueue(ctx, "n1", src); d.Partitions[0] == open.Partitions[0] {
				sources[d.ForwardTo] = append(sources[d.ForwardTo], d)
			}
		}
		b.net.Swallow(func(_, _ fsm.NodeID, kind uint8, msg []byte) bool {
			if kind != KindRaft {
				return false
			}
			call, err := raftnet.ParseCall(msg)
			return err == nil && call.Group == home
		})
		var want []string
		for i, d := range sources[stuck.Name] {
			text := fmt.Sprintf("m%03d", i)
			want = append(want, text)
			b.enqueue(ctx, d, reqOf(3, 1, i+1), &fsm.Enqueue{Messages: []fsm.Message{{Body: storedForm(nil, text)}}})
		}
		time.Sleep(10 * time.Second)
		for i := range 3 {
			b.enqueue(ctx, sources[open.Name][0], reqOf(3, 2, i+1), &fsm.Enqueue{Messages: []fsm.Message{{Body: storedForm(nil, fmt.Sprint(i))}}})
			b.arrives(open, fsm.Main, moveTimeout+2*placePatience, numbers(i+1)...)
		}
		b.net.Swallow(nil)
		b.until("all have arrived", func() string {
			got := b.texts(ctx, stuck, fsm.Main)
			if slices.Sort(got); slices.Equal(got, want) {
				return ""
			}
			return fmt.Sprintf("%d of %d: %q", len(got), len(want), got)
		})
	})
}

// numbers are the first so many.
func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// S-311: what a destination remembers of a source is bounded, also while another destination of that source has no
// majority. Here both are shares of one queue.
func TestAShareWithoutAMajorityMakesNoOtherRemember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to := forwarding(t, func(_, to *fsm.Descriptor) { to.Partitioned = true })
		defer b.close()
		stuck := to.Partitions[0]
		b.net.Swallow(func(_, _ fsm.NodeID, kind uint8, msg []byte) bool {
			if kind != KindRaft {
				return false
			}
			call, err := raftnet.ParseCall(msg)
			return err == nil && call.Group == stuck
		})
		const rounds, each = 8, 40
		for i := range rounds {
			c := &fsm.Enqueue{}
			for k := range each {
				c.Messages = append(c.Messages, fsm.Message{Body: storedForm(nil, fmt.Sprint(i, k))})
			}
			b.enqueue(t.Context(), from, reqOf(3, 1, i+1), c)
			time.Sleep(2 * moveTimeout)
		}
		moved := 0
		for _, p := range to.Partitions[1:] {
			b.leader(p).View(func(m replica.Machine, _ uint64) {
				s := m.(*fsm.State)
				moved += int(s.Query(fsm.QueryRequest{Entity: to.ID, Query: &fsm.Counts{}}).Counts.Active)
				s.EachOrigin(to.ID, func(o fsm.RestoredOrigin) {
					if len(o.Decided) > each {
						t.Errorf("partition %d remembers %d messages", p, len(o.Decided))
					}
				})
			})
		}
		if moved < rounds*each/2 {
			t.Errorf("%d of %d messages have moved: the test shows nothing", moved, rounds*each)
		}
	})
}
