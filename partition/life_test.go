package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// RUL-19: when the cluster declares a life over whose process goes on, the life that the front end
// draws next is the one that the catalog knows.
func TestCatalogLearnsTheNextLifeOfAFrontEnd(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		ctx := shortly(t, time.Minute)
		n := b.all["n1"]
		first := n.host.cfg.Incarnation
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
		send := func(i fsm.Incarnation) fsm.Refusal {
			t.Helper()
			o, err := n.r.Propose(ctx, fsm.RequestID{Node: i, Pump: 1, Counter: uint64(i)}, k,
				&fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
			if err != nil {
				t.Fatal(err)
			}
			return o.Refusal
		}
		known := func() fsm.Incarnation {
			v, ok := n.dir.View().Node("n1")
			if !ok {
				t.Fatal("the catalog does not know the node")
			}
			return v.Incarnation
		}
		if send(first) != fsm.None || send(5001) != fsm.None || known() != first {
			t.Fatalf("another number alone is not another life: %d", known())
		}
		if _, err := b.all["n2"].dir.change(ctx, lostChange(first)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if r := send(first); r != fsm.NodeExpired {
			t.Fatalf("a life that is over is answered %d", r)
		}
		if r := send(5002); r != fsm.None {
			t.Fatalf("the next life is answered %d", r)
		}
		time.Sleep(3 * time.Second)
		if got := known(); got != 5002 {
			t.Errorf("the catalog knows the life %d", got)
		}
		// And once more, now that the second is over.
		if _, err := b.all["n2"].dir.change(ctx, lostChange(5002)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if send(5002) != fsm.NodeExpired || send(5003) != fsm.None {
			t.Error("the second life does not end as the first did")
		}
		time.Sleep(3 * time.Second)
		if got := known(); got != 5003 {
			t.Errorf("the catalog knows the life %d", got)
		}
	})
}

// A request whose first attempt was applied unanswered is not refused as one that changed nothing when its
// life is over meanwhile: the front end would send it again as of its next life. RUL-19, S-298.
func TestRequestOfALostLifeIsUnknownIfItWasAskedBefore(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		const life = 77
		l := b.leader(d.Partitions[0])
		via := b.others(l.Node())[0]
		enqueues := func() (n uint64) {
			l.View(func(m replica.Machine, _ uint64) {
				n = m.Query(fsm.QueryRequest{Entity: d.ID, Query: &fsm.Counts{}}).Counts.Active
			})
			return n
		}
		b.net.SetDelay(10*time.Millisecond, 0)
		done := make(chan error, 1)
		go func() {
			o, err := b.all[via].r.Propose(shortly(t, time.Minute), fsm.RequestID{Node: life, Pump: 1, Counter: 1},
				fsm.Key{Entity: d.ID, By: fsm.ByShare}, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
			if err == nil {
				err = &fsm.RefusedError{Refusal: o.Refusal}
			}
			done <- err
		}()
		for enqueues() == 0 {
			time.Sleep(time.Millisecond)
		}
		b.net.Isolate(via, true) // the answer is on its way
		var on fsm.NodeID
		for _, id := range b.others(via) {
			on = id
		}
		if _, err := b.all[on].dir.change(shortly(t, time.Minute), lostChange(life)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the partitions hear of it
		b.net.Isolate(via, false)
		if err := <-done; !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("the request ended with %v", err)
		}
		if n := enqueues(); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// A leadership is handed over through any node: the one that does not lead passes the wish on.
func TestTransferThroughAnyNode(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) {
		for range 6 {
			for _, via := range b.ids {
				l := b.leader(1).Node()
				to := b.others(l)[0]
				if err := b.nodes[via].host.TransferLeadership(shortly(t, 10*time.Second), 1, to); err != nil {
					t.Fatalf("from %s to %s through %s: %v", l, to, via, err)
				}
				if got := b.leader(1, l).Node(); got != to {
					t.Errorf("%s leads, not %s", got, to)
				}
				time.Sleep(3 * time.Second)
			}
		}
		// Nobody leads a partition that does not exist.
		err := b.nodes["n1"].host.TransferLeadership(shortly(t, time.Second), 99, "n2")
		if !errors.Is(err, fsm.ErrNotLeader) {
			t.Errorf("partition 99: %v", err)
		}
		// To a node that does not answer it is refused, through any node, and the leader stays.
		l := b.leader(1)
		dead := b.others(l.Node())[0]
		via := b.others(l.Node())[1]
		b.kill(dead)
		ctx := shortly(t, 10*time.Second)
		if err := b.nodes[via].host.TransferLeadership(ctx, 1, dead); err == nil {
			t.Error("a leadership was handed to a dead node")
		}
		if !l.Leading() {
			t.Error("the leader does not lead any more")
		}
	})
}

// RUL-20: a follower whose leader is lost is not ready before another one leads, though raft goes on
// believing in the lost one until its time-out.
func TestNotReadyWhileTheLeaderIsLost(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1).Node()
		follower := c.others(l)[0]
		h := c.nodes[follower].host
		time.Sleep(time.Second)
		if err := h.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.net.Isolate(l, true)
		h.lost.add(l)
		if r := h.Replica(1); func() fsm.NodeID { n, _ := r.Leader(); return n }() != l {
			t.Fatal("the follower has noticed by itself")
		}
		if err := h.Ready(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("ready without a leader: %v", err)
		}
		c.leader(1, l)
		time.Sleep(time.Second)
		if err := h.Ready(t.Context()); err != nil {
			t.Errorf("with another leader: %v", err)
		}
		// It comes back, leads again, and is as good as any.
		c.net.Isolate(l, false)
		time.Sleep(5 * time.Second)
		if err := c.leader(1).Transfer(shortly(t, 10*time.Second), l); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := h.Ready(t.Context()); err != nil || h.lost.has(l) {
			t.Errorf("the lost one leads again: %v", err)
		}
	})
}
