package partition

import (
	"context"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
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
