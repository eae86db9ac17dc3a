package partition

import (
	"context"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func reqID(pump, counter uint64) fsm.RequestID {
	return fsm.RequestID{Node: 7, Pump: pump, Counter: counter}
}

func enqueue(id fsm.RequestID, bodies ...string) fsm.Request {
	q := &fsm.Enqueue{}
	for _, b := range bodies {
		q.Messages = append(q.Messages, fsm.Message{Body: []byte(b)})
	}
	return fsm.Request{ID: id, Entity: 1, Command: q}
}

func lock(id fsm.RequestID, n uint32, wait fsm.Millis) fsm.Request {
	return fsm.Request{ID: id, Entity: 1, Command: &fsm.Lock{Max: n, Wait: wait}}
}

func TestLoneNodeServesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		began := time.Now()
		c.open(1)
		defer c.close()
		r := c.leader(1)
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("leading after %v of virtual time", took)
		}
		ctx := context.Background()
		if o, err := r.Propose(ctx, enqueue(reqID(1, 1), "hello")); err != nil || len(o.Numbers) != 1 {
			t.Fatalf("enqueue: %+v, %v", o, err)
		}
		o, err := r.Propose(ctx, lock(reqID(2, 1), 5, 0))
		if err != nil || len(o.Locked) != 1 || string(o.Locked[0].Body) != "hello" {
			t.Fatalf("lock: %+v, %v", o, err)
		}
	})
}

func TestProposalsFromEveryNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.open(1)
		defer c.close()
		leader := c.leader(1).Node()
		for i, id := range c.ids {
			var g Group = NewRemote(c.nodes[id].port, leader, 1)
			if id == leader {
				g = c.nodes[id].host.Replica(1)
			}
			o, err := g.Propose(t.Context(), enqueue(reqID(uint64(i+1), 1), "x"))
			if err != nil || len(o.Numbers) != 1 {
				t.Fatalf("through %s: %+v, %v", id, o, err)
			}
		}
	})
}
