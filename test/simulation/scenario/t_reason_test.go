package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// S-174: every message that the broker itself dead-letters says why, with the system's reason and a
// text beside it.
func TestEverySystemReasonHasItsText(t *testing.T) {
	dividing := func(b *bench, filter, action string) string {
		b.topic("t")
		b.subscription("t", "a", func(d *fsm.Descriptor) { d.DeadLetterOnFilterError = true })
		c := b.client()
		c.only(subA, filter, action)
		c.sender("t").send(message("m", with("x", int32(1))))
		return subA
	}
	for name, tc := range map[string]struct {
		// kill has the broker dead-letter a message, and tells where.
		kill         func(b *bench) (entity string)
		reason, text string // text is empty where the words are ours to choose
	}{
		"deliveries used up": {func(b *bench) string {
			b.queue("q", maxDelivery(2))
			c := b.client()
			c.send("q", "m")
			r := c.receiver("q")
			r.one().abandon()
			r.one().abandon()
			return "q"
		}, "MaxDeliveryCountExceeded", "Message could not be consumed after 2 delivery attempts."},
		"expired": {func(b *bench) string {
			b.queue("q", deadExpired)
			c := b.client()
			c.sender("q").send(message("m", living(time.Second)))
			b.pass(2 * time.Second)
			c.receiver("q").none(6 * time.Second)
			return "q"
		}, "TTLExpiredException", "The message expired and was dead lettered."},
		"forwarded too often": {func(b *bench) string {
			b.queue("q6")
			for i := 5; i >= 1; i-- {
				b.queue(fmt.Sprint("q", i), forwardTo(fmt.Sprint("q", i+1)))
			}
			b.client().send("q1", "m")
			return "q5"
		}, "MaxTransferHopCountExceeded", ""},
		"forwarded to sessions without one": {func(b *bench) string {
			b.queue("to", sessions)
			b.queue("q", forwardTo("to"))
			b.client().send("q", "m")
			return "q"
		}, "Session ID is null.", ""},
		"published to sessions without one": {func(b *bench) string {
			b.topic("t")
			b.subscription("t", "a", sessions)
			b.client().send("t", "m")
			return subA
		}, "Session ID is null.", ""},
		"a filter that fails": {func(b *bench) string {
			return dividing(b, "x / 0 = 1", "")
		}, "FilterException", ""},
		"an action that fails": {func(b *bench) string {
			return dividing(b, "1 = 1", "SET y = x / 0")
		}, "RuleActionException", ""},
	} {
		t.Run(name, func(t *testing.T) {
			onOne(t, func(b *bench) {
				m := b.client().receiver(deadLetters(tc.kill(b))).one()
				want(b, "text", m.text(), "m")
				want(b, "reason", m.reason(), tc.reason)
				description, _ := m.property("DeadLetterErrorDescription").(string)
				if description == "" || tc.text != "" && description != tc.text {
					b.Fatalf("described as %q, want %q", description, tc.text)
				}
			})
		})
	}
}

// S-174: nothing is ever dead-lettered for HeaderSizeExceeded, because no stored message comes to have
// too large a header: whoever would make it so is told himself, and a rule that would is a rule that
// fails (decision 0035).
func TestNobodyMakesAHeaderTooLarge(t *testing.T) {
	large := strings.Repeat("v", 30_000)
	onOne(t, func(b *bench) {
		b.topic("t")
		b.subscription("t", "a", func(d *fsm.Descriptor) { d.DeadLetterOnFilterError = true })
		c := b.client()
		c.rule(subA, "copying", "p IS NOT NULL", "SET a = p; SET b = p; SET c = p")
		r := c.receiver(subA)
		c.send("t", "m")
		b.must("abandon", r.one().tryAbandon(map[string]any{"a": large}))
		b.must("abandon again", r.one().tryAbandon(map[string]any{"b": large}))
		more := map[string]any{"c": large}
		for what, try := range map[string]func(m *got) error{
			"abandon":     func(m *got) error { return m.tryAbandon(more) },
			"defer":       func(m *got) error { return m.tryDefer(more) },
			"dead-letter": func(m *got) error { return m.tryDeadLetter("R", "D", more) },
		} {
			m := r.one()
			b.refused(what+" with one property too many", try(m), tooLarge)
			m.release()
		}
		m := r.one()
		want(b, "the first property", m.property("a"), any(large))
		want(b, "the second", m.property("b"), any(large))
		want(b, "the one that was refused", m.property("c"), nil)
		m.complete()
		c.sender("t").send(message("copied", with("p", large)))
		want(b, "reason of the copy", c.receiver(deadLetters(subA)).one().reason(), "RuleActionException")
	})
}
