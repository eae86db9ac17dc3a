package scenario

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// Further conditions, as clients see them.
const (
	alreadyExists = "com.microsoft:entity-already-exists"
	unauthorized  = "amqp:unauthorized-access"
	txnTooLarge   = "amqp:resource-limit-exceeded"
)

// refusals are the rows of the table of S-2: what provokes each, and the condition by which the official
// clients know it, and know whether to try again (amqp-protocol.md, section 12). ServiceBusy and
// GeneralError need a broker that fails: transport has TestFailuresHaveTheirConditions.
var refusals = []struct {
	code, condition string
	provoke         func(b *bench, c *client) error
}{
	{"MessageLockLost", lockLost, func(b *bench, c *client) error {
		c.send("q", "x")
		m := c.receiver("q").one()
		b.pass(6 * time.Second)
		return c.settleByToken("q", "completed", m.token)
	}},
	{"MessageLockLost of a renewal", lockLost, func(b *bench, c *client) error {
		c.send("q", "x")
		m := c.receiver("q").one()
		m.complete()
		_, err := c.tryRenew("q", m.token)
		return err
	}},
	{"SessionLockLost", sessionLost, func(b *bench, c *client) error {
		r := c.accept("s", "lost", 0)
		b.pass(6 * time.Second)
		return r.trySetState([]byte("x"))
	}},
	{"SessionCannotBeLocked", sessionHeld, func(b *bench, c *client) error {
		c.accept("s", "held", 0)
		_, err := b.client().tryAccept("s", "held", 0)
		return err
	}},
	{"MessageNotFound", notFound, func(_ *bench, c *client) error {
		_, err := c.tryFetch("q", nil, 999)
		return err
	}},
	{"MessageNotFound of a cancellation", notFound, func(_ *bench, c *client) error {
		return c.cancel("q", 999)
	}},
	{"MessagingEntityNotFound", entityNotFound, func(_ *bench, c *client) error {
		_, err := c.trySender("none")
		return err
	}},
	{"MessagingEntityAlreadyExists", alreadyExists, func(_ *bench, c *client) error {
		c.rule(subA, "twice", "1=1", "")
		_, err := c.tryAsk(subA, "add-rule", map[string]any{"rule-name": "twice",
			"rule-description": map[string]any{"sql-filter": map[string]any{"expression": "1=1"}}})
		return err
	}},
	{"MessagingEntityDisabled", entityDisabled, func(b *bench, c *client) error {
		b.queue("off", func(d *fsm.Descriptor) { d.Status = fsm.Disabled })
		_, err := c.trySender("off")
		return err
	}},
	{"MessageSizeExceeded", tooLarge, func(_ *bench, c *client) error {
		// A sender's library looks at the limit itself; a request to schedule is the broker's to refuse.
		_, err := c.trySchedule("q", time.Now(), message(strings.Repeat("x", 256<<10), withID("large")))
		return err
	}},
	{"QuotaExceeded", quotaExceeded, func(b *bench, c *client) error {
		b.queue("small", func(d *fsm.Descriptor) { d.MaxSizeBytes = 1000 })
		return c.sender("small").try(message(strings.Repeat("x", 2000), withID("large")))
	}},
	{"ServiceTimeout", timedOut, func(_ *bench, c *client) error {
		_, err := c.tryAccept("empty", nil, time.Second)
		return err
	}},
	{"InvalidOperation", notAllowed, func(_ *bench, c *client) error {
		return c.sender("s").try(message("without a session"))
	}},
	{"InvalidArgument", invalidArgument, func(_ *bench, c *client) error {
		return c.sender("s").try(message("x", inSession(strings.Repeat("s", 129))))
	}},
	{"Unauthorized", unauthorized, func(b *bench, _ *client) error {
		ctx, cancel := b.soon()
		defer cancel()
		conn, err := b.lab.Dial(ctx, int(b.clients.Add(1)), 0)
		if err != nil {
			return err
		}
		stranger, err := goamqp.NewConn(ctx, conn, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
		if err != nil {
			return err
		}
		session, err := stranger.NewSession(ctx, nil)
		if err != nil {
			return err
		}
		_, err = session.NewSender(ctx, "q", nil)
		return err
	}},
	{"TransactionAborted", rolledBack, func(b *bench, c *client) error {
		c.send("q", "x")
		d := b.dealer()
		x := d.begin()
		x.complete(d.one("q"))
		b.pass(6 * time.Second)
		return x.tryCommit()
	}},
	{"TransactionSizeExceeded", txnTooLarge, func(b *bench, _ *client) error {
		x := b.dealer().begin()
		for range 100 {
			x.send("q", message("x"))
		}
		return x.trySend("q", message("one more"))
	}},
}

// wholeRefusal is the end of a text about an entity (S-1).
var wholeRefusal = regexp.MustCompile(
	`TrackingId:[0-9a-f-]{36}_G0, SystemTracker:busbar:[^,]+, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`)

// T-48; S-1, S-2, S-3: every refusal has its condition, an id, the entity and the time, and has changed
// nothing that anybody could count.
func TestT48EveryRefusalHasItsCode(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		b.queue("s", sessions)
		b.queue("empty", sessions)
		b.topic("t", "a")
		for _, r := range refusals {
			c := b.client()
			err := r.provoke(b, c)
			b.refused(r.code, err, r.condition)
			if !wholeRefusal.MatchString(err.Error()) {
				b.Errorf("%s: no id, entity and time in %v", r.code, err)
			}
			c.close()
		}
		want(b, "stored in s", b.counts("s").Active, 0)
		want(b, "stored in small", b.counts("small").Active, 0)

		// ServiceCommunicationProblem is what a client makes of a connection that is gone.
		c := b.client()
		s := c.sender("q")
		c.die()
		var lost *goamqp.ConnError
		if err := s.Send(context.Background(), message("x"), nil); !errors.As(err, &lost) {
			b.Errorf("over a connection that is gone: %v", err)
		}
	})
}
