package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/check"
)

const (
	// leaderLimit, catchUpLimit and drainLimit are how long after the last fault something has to hold (I26).
	// Everything has to serve, the followers to have caught up, and the queues to be emptied. Of places see homesLimit.
	leaderLimit  = 30 * time.Second
	catchUpLimit = 60 * time.Second
	drainLimit   = 5 * time.Minute
)

// within repeats try until it succeeds or time is over; the last error is returned.
func within(limit time.Duration, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// said returns what the replicas of a group say of an election, a line each.
func (w *world) said(p fsm.PartitionID) string {
	var b strings.Builder
	for _, m := range w.machines() {
		if st, has := w.statusOf(m.id, p); has {
			fmt.Fprintf(&b, "\n  %s in term %d follows %q, has %d of term %d, voters %v, without a vote %v, configured at %d, changing %v, %s", m.id,
				st.Term, st.Leader, st.Last, st.LastTerm, st.Voters, st.Nonvoters, st.Configured, st.Changing, st.Failure)
		}
	}
	return b.String()
}

// serving checks that every group has a leader that accepts, and that every replica that can follows.
func (w *world) serving(except *machine) error {
	err := within(leaderLimit, func(context.Context) error {
		for p := range w.cfg.Partitions + 1 {
			if w.leaderOf(fsm.PartitionID(p)) == nil {
				return fmt.Errorf("I26: partition %d has no leader %v after the faults%s", p, leaderLimit, w.said(fsm.PartitionID(p)))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	leads := make([]uint64, w.cfg.Partitions+1) // what everybody has to reach
	for p := range leads {
		if m := w.leaderOf(fsm.PartitionID(p)); m != nil {
			leads[p] = m.node.host.Replica(fsm.PartitionID(p)).Status().Committed
		}
	}
	return within(catchUpLimit, func(context.Context) error {
		v := w.view()
		for p, lead := range leads {
			for _, m := range w.there() {
				if m == except || v != nil && v.IsRemoved(m.id) { // a node that is forgotten gets no entries any more
					continue
				}
				if m.node == nil {
					return fmt.Errorf("I26: %s is down: %w", m.id, errors.Join(m.failed...))
				}
				r := m.node.host.Replica(fsm.PartitionID(p))
				if r == nil && !m.node.placed(fsm.PartitionID(p)) {
					continue
				}
				if r == nil {
					return fmt.Errorf("I26: %s holds no replica of partition %d, but %+v", m.id, p, m.node.host.Status())
				}
				if s := r.Status(); s.Failure != "" || s.Applied < lead {
					return fmt.Errorf("I26: partition %d on %s has applied %d of %d: %s", p, m.id, s.Applied,
						lead, s.Failure)
				}
			}
		}
		return nil
	})
}

// placed reports whether the catalog gives the node a replica of a partition.
func (n *node) placed(p fsm.PartitionID) bool {
	v := n.directory.View()
	if p == fsm.CatalogPartition || v == nil {
		return true
	}
	g, known := v.Group(p)
	return !known || slices.Contains(g.Members, n.id)
}

// calm is a client of the end: it connects until it succeeds, and records nothing but what it takes.
func (w *world) calm() *client {
	c := w.newClient(1000)
	c.calm = true
	return c
}

// retry repeats an attempt over fresh connections.
func (c *client) retry(limit time.Duration, try func(ctx context.Context) error) error {
	return within(limit, func(ctx context.Context) error {
		if c.conn == nil {
			if err := c.connect(ctx); err != nil {
				return err
			}
		}
		err := try(ctx)
		if err != nil {
			c.disconnect(false)
		}
		return err
	})
}

// peekAll lists all that is in a place.
func (c *client) peekAll(q *check.Queue, sub string) (all []check.Message, err error) {
	err = c.retry(time.Minute, func(ctx context.Context) error {
		all = nil
		from := int64(1)
		for {
			page, err := c.peekPage(ctx, q, sub, from, 100)
			if err != nil {
				return fmt.Errorf("peek %s: %w", c.address(q, sub), err)
			}
			if len(page) == 0 {
				return nil
			}
			all = append(all, page...)
			from = page[len(page)-1].Seq + 1
		}
	})
	return all, err
}

func (c *client) peekPage(ctx context.Context, q *check.Queue, sub string, from int64, count int) (
	[]check.Message, error) {
	a, err := c.ask(ctx, c.address(q, sub), "peek-message", map[string]any{
		"from-sequence-number": from, "message-count": int32(count),
	})
	if err != nil {
		return nil, err
	}
	list, _ := a["messages"].([]any)
	out := make([]check.Message, 0, len(list))
	for _, item := range list {
		m, err := unpack(item)
		if err != nil {
			return nil, err
		}
		out = append(out, messageOf(m))
	}
	return out, nil
}

// unpack reads a message inside an answer.
func unpack(item any) (*goamqp.Message, error) {
	fields, _ := item.(map[string]any)
	encoded, _ := fields["message"].([]byte)
	m := &goamqp.Message{}
	if err := m.UnmarshalBinary(encoded); err != nil {
		return nil, err
	}
	return m, nil
}

// places lists everything that is left.
func (w *world) places() (all []check.Place, err error) {
	c := w.calm()
	defer c.quit()
	for i := range w.queues {
		for _, sub := range []string{check.InMain, check.InDeadLetter} {
			list, err := c.peekAll(&w.queues[i], sub)
			if err != nil {
				return nil, err
			}
			for _, m := range list {
				all = append(all, check.Place{Entity: w.queues[i].Name, Sub: sub, Message: m})
			}
		}
	}
	return all, nil
}

func (c *client) quit() {
	if c.conn != nil {
		c.disconnect(true)
	}
}

// drain empties every queue: whatever is there can be taken, when no lock and no fault is in the way.
func (w *world) drain() error {
	for i := range w.queues {
		q := &w.queues[i]
		for _, sub := range []string{check.InMain, check.InDeadLetter} {
			if err := w.drainOne(q, sub); err != nil {
				return fmt.Errorf("I26: %s is not empty after %v: %w", q.Name+"/"+sub, drainLimit, err)
			}
		}
	}
	return nil
}

func (w *world) drainOne(q *check.Queue, sub string) error {
	c := w.calm()
	defer c.quit()
	return c.retry(drainLimit, func(ctx context.Context) error {
		for {
			left, err := c.peekAll(q, sub)
			if err != nil {
				return err
			}
			var active, deferred []check.Message
			for _, m := range left {
				switch m.State {
				case check.Active:
					active = append(active, m)
				case check.Deferred:
					deferred = append(deferred, m)
				}
			}
			if len(active)+len(deferred) == 0 {
				return nil
			}
			err = c.drainRound(ctx, q, sub, active, deferred)
			if ctx.Err() != nil {
				return fmt.Errorf("%d active and %d deferred are left, the first is %+v: %w", len(active),
					len(deferred), append(active, deferred...)[0], err)
			}
			if err != nil {
				return err
			}
		}
	})
}

// drainRound takes what is deferred by number and the rest as it comes.
func (c *client) drainRound(ctx context.Context, q *check.Queue, sub string,
	active, deferred []check.Message) error {
	open := func(filter ...goamqp.LinkFilter) (*goamqp.Receiver, error) {
		limit, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		return c.session.NewReceiver(limit, c.address(q, sub), &goamqp.ReceiverOptions{
			Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(), Filters: filter,
		})
	}
	if !q.Sessions || sub != check.InMain {
		if err := c.takeDeferred(ctx, q, sub, "", deferred); err != nil {
			return err
		}
		if len(active) == 0 {
			return nil
		}
		rx, err := open()
		if err != nil {
			return err
		}
		return c.empty(ctx, rx)
	}
	id := append(active, deferred...)[0].Session
	rx, err := open(goamqp.NewLinkFilter("com.microsoft:session-filter", 0x000000137000000C, id))
	if err != nil {
		return err
	}
	var own []check.Message
	for _, m := range deferred {
		if m.Session == id {
			own = append(own, m)
		}
	}
	if err := c.takeDeferred(ctx, q, sub, id, own); err != nil {
		return err
	}
	return c.empty(ctx, rx)
}

// takeDeferred receives and deletes deferred messages.
func (c *client) takeDeferred(ctx context.Context, q *check.Queue, sub, session string,
	list []check.Message) error {
	for _, m := range list {
		body := map[string]any{"sequence-numbers": []int64{m.Seq}, "receiver-settle-mode": uint32(0)}
		if q.Sessions && sub == check.InMain {
			body["session-id"] = session
		}
		if _, err := c.ask(ctx, c.address(q, sub), "receive-by-sequence-number", body); err != nil {
			return fmt.Errorf("receive deferred %d: %w", m.Seq, err)
		}
	}
	return nil
}

// empty completes what comes until nothing does for a while, many at a time. With a disk that is slow for ever, a
// thousand one after the other take longer than drainLimit.
func (c *client) empty(ctx context.Context, rx *goamqp.Receiver) error {
	const atOnce = 32
	if err := rx.IssueCredit(atOnce); err != nil {
		return err
	}
	accepts := make(chan error, atOnce)
	under := 0
	accepted := func(most int) error {
		for ; under > most; under-- {
			if err := <-accepts; err != nil {
				return err
			}
		}
		return nil
	}
	for {
		limit, cancel := context.WithTimeout(ctx, 2*time.Second)
		m, err := rx.Receive(limit, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			if err := accepted(0); err != nil {
				return err
			}
			limit, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			return rx.Close(limit)
		}
		if err != nil {
			return err
		}
		if err := accepted(atOnce - 1); err != nil {
			return err
		}
		under++
		go func() {
			limit, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			accepts <- rx.AcceptMessage(limit, m)
		}()
		if err := rx.IssueCredit(1); err != nil {
			return err
		}
	}
}
