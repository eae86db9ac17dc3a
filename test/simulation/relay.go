package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/test/ledger"
)

// Messages that move from one queue to another are on their way while a backup is taken. Checkers of histories know a message
// in one queue, so these have a ledger of their own.
const (
	relayFrom, relayTo = "relay", "relayed"
	relayEvery         = 250 * time.Millisecond
)

// relays is what is known of the messages that are forwarded. All of them have the name of the queue that they were sent to.
type relays struct {
	mu    sync.Mutex
	lives map[ledger.Name]ledger.Life
	seen  map[string]int64 // when a message was first received, by its id
	sent  int
}

func (r *relays) change(id string, f func(*ledger.Life)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lives == nil {
		r.lives = map[ledger.Name]ledger.Life{}
	}
	name := ledger.Name{Queue: relayFrom, ID: id}
	l := r.lives[name]
	f(&l)
	r.lives[name] = l
}

func (r *relays) next() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	return fmt.Sprintf("r%d", r.sent)
}

// received notes the number of a message.
func (r *relays) received(id string, number int64) {
	r.change(id, func(l *ledger.Life) {
		l.Number = number
		if r.seen == nil {
			r.seen = map[string]int64{}
		}
		if r.seen[id] == 0 {
			r.seen[id] = time.Now().UnixNano()
		}
	})
}

// until returns what is known. A message has its number if it was received before a time: in a restored cluster what was on
// its way is numbered anew.
func (r *relays) until(at int64) map[ledger.Name]ledger.Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	lives := maps.Clone(r.lives)
	for name, l := range lives {
		if r.seen[name.ID] > at {
			l.Number = 0
			lives[name] = l
		}
	}
	return lives
}

// relays reports whether messages are forwarded in a run: there are backups.
func (c *Config) relays() bool {
	return slices.ContainsFunc(c.faults, func(f fault) bool { return f.name == "backup" })
}

// createRelays makes the two queues.
func (w *world) createRelays() error {
	for _, name := range []string{relayTo, relayFrom} {
		d := descriptorOf(&check.Queue{Name: name, LockMillis: 5_000, MaxDelivery: 1000})
		if name == relayFrom {
			d.ForwardTo = relayTo
		}
		err := within(time.Minute, func(ctx context.Context) error {
			_, err := w.machines()[0].node.directory.Create(ctx, d)
			return err
		})
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	return nil
}

// relay sends messages that are forwarded, one after the other.
func (c *client) relay() {
	c.work(func(ctx context.Context) error {
		open, cancel := context.WithTimeout(ctx, opLimit)
		tx, err := c.session.NewSender(open, relayFrom, nil)
		cancel()
		for err == nil && ctx.Err() == nil {
			m := goamqp.NewMessage([]byte("relay"))
			id, now := c.w.relays.next(), time.Now().UnixNano()
			m.Properties = &goamqp.MessageProperties{MessageID: id}
			c.w.relays.change(id, func(l *ledger.Life) { l.Begun, l.Content = now, hashOf(m) })
			limit, cancel := c.opContext()
			if err = tx.Send(limit, m, nil); err == nil {
				c.w.relays.change(id, func(l *ledger.Life) { l.Kept = time.Now().UnixNano() })
			}
			cancel()
			c.pause(relayEvery)
		}
		return err
	})
}

// arrive takes most of what was forwarded.
func (c *client) arrive() {
	c.work(func(ctx context.Context) error {
		open, cancel := context.WithTimeout(ctx, opLimit)
		rx, err := c.session.NewReceiver(open, relayTo, &goamqp.ReceiverOptions{
			Credit: 5, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
		})
		cancel()
		for err == nil && ctx.Err() == nil {
			limit, cancel := context.WithTimeout(ctx, idleReceive)
			m, got := rx.Receive(limit, nil)
			cancel()
			if errors.Is(got, context.DeadlineExceeded) || errors.Is(got, context.Canceled) {
				continue
			}
			if err = got; err != nil {
				break
			}
			said, now := messageOf(m), time.Now().UnixNano()
			c.w.relays.received(said.ID, said.Seq)
			if c.rng.IntN(4) == 0 {
				continue // until its lock expires
			}
			c.w.relays.change(said.ID, func(l *ledger.Life) {
				if l.Leaving == 0 {
					l.Leaving = now
				}
			})
			limit, cancel = c.opContext()
			if err = rx.AcceptMessage(limit, m); err == nil {
				c.w.relays.change(said.ID, func(l *ledger.Life) {
					if l.Gone == 0 {
						l.Gone = time.Now().UnixNano()
					}
				})
			}
			cancel()
		}
		return err
	})
}

// relayed lists what was forwarded, when nothing is on its way any more.
func (w *world) relayed() (found []ledger.Found, err error) {
	c := w.calm()
	defer c.quit()
	err = within(time.Minute, func(context.Context) error {
		if left, err := c.peekAll(&check.Queue{Name: relayFrom}, check.InMain); err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("%d messages are on their way", len(left)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, at := range []struct{ queue, sub string }{{relayTo, check.InMain}, {relayTo, check.InDeadLetter},
		{relayFrom, check.InDeadLetter}} {
		list, err := c.peekAll(&check.Queue{Name: at.queue}, at.sub)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			found = append(found, ledger.Found{Name: ledger.Name{Queue: relayFrom, ID: m.ID}, Number: m.Seq, Content: m.Hash})
		}
	}
	return found, nil
}

// forwarded judges what was forwarded in this cluster, when the clients have stopped: nothing is lost, doubled or out of
// order (I32).
func (w *world) forwarded() error {
	if !w.cfg.relays() {
		return nil
	}
	found, err := w.relayed()
	if err != nil {
		return fmt.Errorf("I26: what is forwarded does not arrive: %w", err)
	}
	now := time.Now().UnixNano()
	for _, text := range ledger.JudgeCopy(now, now, w.relays.until(now), found) {
		w.spoil("I32", errors.New("at the end: "+text))
	}
	return nil
}
