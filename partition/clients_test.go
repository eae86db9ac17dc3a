package partition

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// slowClients leave when they are told to. They count how often they were sent away and taken back.
type slowClients struct {
	mu         sync.Mutex
	away, back int
	leave      chan struct{}
}

func (c *slowClients) SendAway(ctx context.Context) error {
	c.mu.Lock()
	c.away++
	c.mu.Unlock()
	select {
	case <-c.leave:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *slowClients) TakeBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.back++
}

func (c *slowClients) counts() (away, back int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away, c.back
}

// ready returns why a node should get no new clients because of its membership, "" if it should.
func (b *brokers) ready(id fsm.NodeID) string {
	for _, c := range b.all[id].host.Readiness(b.t.Context()) {
		if c.Name == CheckMembership && c.Err != nil {
			return c.Err.Error()
		}
	}
	return ""
}

// A node that is removed is forgotten when its clients have gone, and not before: what they hold is given up then. An
// operator who thinks better of it gets them back. S-295.
func TestANodeIsForgottenWhenItsClientsHaveGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		b.grow("n4")
		b.until("four nodes have their share", func() string { return b.level("n1", "n2", "n3", "n4") })
		clients := &slowClients{leave: make(chan struct{})}
		b.all["n1"].host.ServeClients(clients)
		if why := b.ready("n1"); why != "" {
			t.Errorf("not ready before anybody wants it to leave: %s", why)
		}

		b.wish("n4", "n1", catalog.Remove)
		b.until("the clients are sent away", func() string {
			if away, _ := clients.counts(); away == 0 {
				return "not yet"
			}
			return ""
		})
		if b.all["n4"].dir.View().HoldsAny("n1") {
			t.Error("the clients are sent away while the node holds replicas")
		}
		if why := b.ready("n1"); !strings.Contains(why, "this node leaves the cluster for good") {
			t.Errorf("readiness says %q", why)
		}
		time.Sleep(awayTimeout - 10*time.Second)
		if _, known := b.all["n4"].dir.View().Node("n1"); !known {
			t.Fatal("the node was forgotten while it had clients")
		}

		b.wish("n4", "n1", catalog.Serve)
		close(clients.leave)
		b.until("the clients are taken back", func() string {
			if _, back := clients.counts(); back != 1 {
				return "not yet"
			}
			return ""
		})
		time.Sleep(time.Minute)
		if _, known := b.all["n4"].dir.View().Node("n1"); !known {
			t.Fatal("the node was forgotten although nobody wants that any more")
		}
		if why := b.ready("n1"); why != "" {
			t.Errorf("not ready, although it stays: %s", why)
		}

		b.wish("n4", "n1", catalog.Remove)
		b.until("n1 is forgotten", func() string { return b.forgotten("n4", "n1") })
		if away, back := clients.counts(); away != 2 || back != 1 {
			t.Errorf("sent away %d times and taken back %d times, want 2 and 1", away, back)
		}
	})
}

// A node that does not answer may have clients all the same. It is forgotten when what they hold has run out: the longest
// lock after it fell silent. S-295.
func TestASilentNodeIsForgottenBehindTheLongestLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		const longest = 300 * time.Second
		slow := queue("slow", false)
		slow.LockDuration = fsm.Millis(longest.Milliseconds())
		b.createQueue(t.Context(), "n2", slow)
		b.grow("n4")
		b.until("four nodes have their share", func() string { return b.level("n1", "n2", "n3", "n4") })
		clients := &slowClients{leave: make(chan struct{})}
		b.all["n1"].host.ServeClients(clients)
		b.wish("n4", "n1", catalog.Remove)
		b.until("the clients are sent away", func() string {
			if away, _ := clients.counts(); away == 0 {
				return "not yet"
			}
			return ""
		})
		silent := time.Now()
		b.kill("n1")
		time.Sleep(time.Until(silent.Add(longest)))
		if _, known := b.all["n4"].dir.View().Node("n1"); !known {
			t.Fatal("the node was forgotten although its clients may hold locks")
		}
		b.until("n1 is forgotten", func() string { return b.forgotten("n4", "n1") })
		if took := time.Since(silent); took > longest+time.Minute {
			t.Errorf("forgotten after %v", took)
		}
	})
}
