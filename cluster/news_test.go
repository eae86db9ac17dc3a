package cluster

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/busbar-mq/busbar/cluster/tick"
	"github.com/busbar-mq/busbar/fsm"
)

// packets counts what gossip sends, and what of it is sent between the moments at which nodes tick.
type packets struct{ sent, between atomic.Int64 }

// counted is a transport that counts.
type counted struct {
	memberlist.Transport
	*packets
}

func (c counted) WriteTo(b []byte, addr string) (time.Time, error) {
	c.sent.Add(1)
	if tick.Until(Defaults().PingInterval) > 2*time.Millisecond {
		c.between.Add(1)
	}
	return c.Transport.WriteTo(b, addr)
}

// crowd returns that many nodes that know each other and have told everything, and what counts their packets.
func (s *simNet) crowd(size int) ([]*simNode, *packets) {
	s.t.Helper()
	var nodes []*simNode
	packets := &packets{}
	for i := 1; i <= size; i++ {
		n := s.build(s.config(i, fsm.Incarnation(i)), simIP(i))
		n.gossip.cfg.GossipTransport = counted{n.gossip.cfg.GossipTransport, packets}
		n.open(s.t)
		nodes = append(nodes, n)
	}
	all := nodes[0].states
	for range 20 {
		time.Sleep(time.Second)
	}
	for _, n := range nodes {
		n.wantStates(s.t, all(), time.Second)
	}
	return nodes, packets
}

// S-296: news does not wait for a round of gossip. What a node tells reaches every other node within three fifths of a second, and so does
// the news that it leaves.
func TestNewsIsToldAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		nodes, _ := s.crowd(5)
		for _, n := range nodes {
			defer n.stop()
		}
		teller := nodes[4]
		for p := fsm.PartitionID(1); p <= 8; p++ {
			time.Sleep(3*time.Second + 130*time.Millisecond) // at another moment of the second each time
			teller.view.Announce(p, "n5", 1)
			time.Sleep(3 * newsInterval)
			for _, n := range nodes {
				if got, _ := n.view.Leader(p); got != "n5" {
					t.Errorf("%s believes that %q leads partition %d, want n5", n.cfg.Node, got, p)
				}
			}
		}
		began := time.Now()
		if err := teller.gossip.Leave(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*newsInterval {
			t.Errorf("it took %v to say goodbye", took)
		}
		for _, n := range nodes[:4] {
			n.wantStates(t, "n1=alive n2=alive n3=alive n4=alive n5=left ", 3*newsInterval)
		}
	})
}

// Nodes without news send one probe a second each, and its answer. They do so at the moments of their other loops.
func TestNodesWithoutNewsAreQuiet(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		nodes, packets := s.crowd(3)
		for _, n := range nodes {
			defer n.stop()
		}
		const seconds = 60
		before, between := packets.sent.Load(), packets.between.Load()
		time.Sleep(seconds * time.Second)
		if sent := packets.sent.Load() - before; sent < 3*seconds || sent > 2*3*(seconds+1) {
			t.Errorf("%d packets in %d s from %d nodes", sent, seconds, len(nodes))
		}
		if n := packets.between.Load() - between; n > 0 {
			t.Errorf("%d packets at moments of their own", n)
		}
		nodes[0].view.Announce(1, "n1", 1)
		before = packets.sent.Load()
		time.Sleep(seconds * time.Second)
		if sent := packets.sent.Load() - before; sent > 2*3*(seconds+1)+3*4 { // each tells it four times
			t.Errorf("%d packets in %d s after one word from %d nodes", sent, seconds, len(nodes))
		}
	})
}
