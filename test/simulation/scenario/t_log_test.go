package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/check"
)

// logged is a row of the table of S-280: something that a client asks for, and the command by which it
// is in the log; "" is a read, which changes nothing.
type logged struct {
	name, command string
	// set makes everything ready, links included; do is the one request. The queues are q and s, which
	// has sessions.
	set func(b *bench, c *client) (do func() error)
}

func loggedSends() []logged {
	return []logged{
		{"a send", "Enqueue", func(_ *bench, c *client) func() error {
			s := c.sender("q")
			return func() error { return s.try(message("m")) }
		}},
		{"a batch", "Enqueue", func(b *bench, c *client) func() error {
			s := c.sender("q")
			m, err := batch(message("1"), message("2"))
			b.must("pack", err)
			return func() error { return s.try(m) }
		}},
		{"a schedule", "Enqueue", func(_ *bench, c *client) func() error {
			c.peek("q", 0, 1)
			return func() error {
				_, err := c.trySchedule("q", time.Now().Add(time.Hour), message("m"))
				return err
			}
		}},
		{"a cancel", "Cancel", func(_ *bench, c *client) func() error {
			n := c.schedule("q", time.Now().Add(time.Hour), message("m"))
			return func() error { return c.cancel("q", n...) }
		}},
		{"a commit", "Commit", func(b *bench, c *client) func() error {
			c.send("q", "m")
			d := b.dealerAt(c.node)
			m := d.one("q")
			x := d.begin()
			x.send("q", message("1"), message("2"))
			x.complete(m)
			return x.tryCommit
		}},
	}
}

// taken is a row about a message that a receiver holds.
func taken(name, command string, do func(m *got) error) logged {
	return logged{name, command, func(_ *bench, c *client) func() error {
		c.send("q", "m")
		m := c.receiver("q").one()
		m.renew() // opens the links of the requests
		return func() error { return do(m) }
	}}
}

// received is a row about taking messages.
func received(name string, change ...func(*goamqp.ReceiverOptions)) logged {
	return logged{name, "Lock", func(_ *bench, c *client) func() error {
		c.send("q", "1", "2", "3")
		r := c.receiver("q", change...)
		return func() error {
			m, err := r.try(patience)
			if err == nil && m == nil {
				err = fmt.Errorf("no message came")
			}
			return err
		}
	}}
}

func loggedReceives() []logged {
	return []logged{
		received("a receive"), received("a receive that deletes", deleting),
		{"a receive by number", "Receive", func(_ *bench, c *client) func() error {
			c.send("q", "m")
			m := c.receiver("q").one()
			m.deferIt()
			m.rx.close()
			c.peek("q", 0, 1)
			return func() error {
				list, err := c.tryFetch("q", nil, m.seq())
				if err == nil && len(list) != 1 {
					err = fmt.Errorf("%d messages came", len(list))
				}
				return err
			}
		}},
		taken("a complete", "Settle", (*got).tryComplete),
		taken("an abandon", "Settle", func(m *got) error { return m.tryAbandon(nil) }),
		taken("a defer", "Settle", func(m *got) error { return m.tryDefer(nil) }),
		taken("a dead-letter", "Settle", func(m *got) error { return m.tryDeadLetter("R", "D", nil) }),
		taken("a release", "Settle", (*got).tryRelease),
		taken("a settlement by token", "Settle", func(m *got) error {
			return m.rx.c.settleByToken("q", "completed", m.token)
		}),
		taken("a renewal", "Renew", func(m *got) error {
			_, err := m.rx.c.tryRenew("q", m.token)
			return err
		}),
		{"a batch delete", "DeleteMessages", func(_ *bench, c *client) func() error {
			c.send("q", "1", "2", "3")
			c.peek("q", 0, 1)
			return func() error {
				n, err := c.deleteBatch("q", 10, time.Now(), "")
				if err == nil && n != 3 {
					err = fmt.Errorf("%d were deleted", n)
				}
				return err
			}
		}},
	}
}

// held is a row about a held session.
func held(name, command string, do func(r *receiver) error) logged {
	return logged{name, command, func(_ *bench, c *client) func() error {
		sendTo(c, "s", "S", "m")
		r := c.accept("s", "S", 0)
		c.peek("s", 0, 1) // opens the links of the requests, and is this minute's use of the queue (A22)
		return func() error { return do(r) }
	}}
}

func loggedSessions() []logged {
	accept := func(name string, id any) logged {
		return logged{name, "AcceptSession", func(_ *bench, c *client) func() error {
			sendTo(c, "s", "S", "m")
			return func() error { _, err := c.tryAccept("s", id, patience); return err }
		}}
	}
	return []logged{
		accept("an accept", "S"), accept("an accept-next", nil),
		held("a renewal of a session", "RenewSession", func(r *receiver) error {
			_, err := r.tryRenewSession()
			return err
		}),
		held("a close of a session", "ReleaseSession", func(r *receiver) error {
			ctx, cancel := r.c.b.soon()
			defer cancel()
			return r.Close(ctx)
		}),
		held("a new state", "SetSessionState", func(r *receiver) error { return r.trySetState([]byte("x")) }),
		held("a look at the state", "", func(r *receiver) error { _, err := r.tryState(); return err }),
		held("a look at a session", "", func(r *receiver) error {
			_, err := r.c.tryPeek("s", map[string]any{
				"from-sequence-number": int64(0), "message-count": int32(10), "session-id": "S",
			})
			return err
		}),
		held("a list of sessions", "", func(r *receiver) error {
			_, err := r.c.tryAsk("s", "get-message-sessions", map[string]any{
				"last-updated-time": withMessages, "skip": int32(0), "top": int32(100),
			})
			return err
		}),
		held("the counters", "", func(r *receiver) error {
			ctx, cancel := r.c.b.soon()
			defer cancel()
			d, err := r.c.b.lab.Directory(r.c.node).Get(ctx, "s")
			if err == nil {
				_, err = r.c.b.lab.Router(r.c.node).Query(ctx, fsm.Key{Entity: d.ID, By: fsm.ByShare}, &fsm.Counts{})
			}
			return err
		}),
	}
}

// asked stops the cluster and returns the commands that clients have put into the log of partition 1
// behind an index; what is there once more under the same request id is the same command. It checks that
// a replica's state was what the log alone makes of nothing.
func (b *bench) asked(after, sum, index uint64) (commands []string) {
	b.Helper()
	for i := range b.lab.Nodes() {
		b.lab.Stop(i)
	}
	own := []string{"Tick", "Barrier", "BecomeLeader", "DropPumps", "NodeLost"} // of the nodes, not of clients
	replayed, compared := fsm.New(1), false
	seen := map[fsm.RequestID]bool{}
	for _, l := range b.lab.Witness().Logs() {
		if l.Partition != 1 {
			continue
		}
		b.must("read the log", l.Each(func(e *check.Entry, d *fsm.Entry) error {
			replayed.Apply(e.Index, d)
			if e.Index == index {
				compared = true
				want(b, "digest of a replica and of its log", sum, replayed.Digest())
			}
			for _, r := range d.Requests {
				name := strings.TrimPrefix(fmt.Sprintf("%T", r.Command), "*fsm.")
				if e.Index > after && e.Index <= index && !slices.Contains(own, name) && !seen[r.ID] {
					commands = append(commands, name)
					seen[r.ID] = r.ID != fsm.RequestID{}
				}
			}
			return nil
		}))
	}
	want(b, "the log has the entry of the digest", compared, true)
	return commands
}

// S-280: every change is an entry of the log and one only, reads are none, and no answer is given before
// the entry has a majority: a leader that is cut off from the others answers nothing, and nothing has
// changed on it.
func TestNothingChangesButByTheLog(t *testing.T) {
	for _, row := range slices.Concat(loggedSends(), loggedReceives(), loggedSessions()) {
		for _, alone := range []bool{false, true} {
			name := row.name
			if alone {
				name += " at a leader without followers"
			}
			t.Run(name, func(t *testing.T) { onThree(t, func(b *bench) { row.run(b, alone) }) })
		}
	}
}

func (l *logged) run(b *bench, alone bool) {
	b.queue("q", lockFor(5*time.Minute))
	b.queue("s", sessions, lockFor(5*time.Minute))
	leader := b.lab.Leader(1)
	do := l.set(b, b.clientAt(leader))
	b.pass(time.Second)
	before, index := b.lab.Digest(leader, 1)
	heal := func() {}
	if alone {
		heal = b.lab.Isolate(leader)
	}
	done := b.later(do)
	if alone {
		b.pass(5 * time.Second)
		select {
		case err := <-done:
			b.Fatalf("answered without a majority: %v", err)
		default:
		}
		sum, applied := b.lab.Digest(leader, 1)
		want(b, "applied without a majority", applied, index)
		want(b, "digest without a majority", sum, before)
	}
	heal()
	b.must(l.name, <-done)
	b.must("serve", b.lab.Settled())
	l.check(b, leader, index)
}

// check compares what the request has put into the log behind an index.
func (l *logged) check(b *bench, node int, index uint64) {
	b.Helper()
	sum, last := b.lab.Digest(node, 1)
	var commands []string // a read is none
	if l.command != "" {
		commands = append(commands, l.command)
	}
	wantAll(b, "commands in the log", b.asked(index, sum, last), commands...)
}

// S-280: what time does by itself is in the log, too: expiry, activation, lost connections and what
// follows from them.
func TestTimeChangesNothingButByTheLog(t *testing.T) {
	onThree(t, func(b *bench) {
		c := prepare(b)
		story(b, c)
		c.send("q", "dropped")
		c.receiver("q").one()
		c.die() // its lock is dropped, and ends after the grace
		b.pass(10 * time.Second)
		want(b, "locked", b.counts("q").Locked, 0)
		sum, index := b.lab.Digest(b.lab.Leader(1), 1)
		commands := b.asked(0, sum, index)
		want(b, "the lost connection is in the log", slices.Contains(commands, "DropLocks"), true)
	})
}
