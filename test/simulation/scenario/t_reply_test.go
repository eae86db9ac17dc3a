package scenario

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// T-156; S-86
func TestT156RepliesFindTheirRequesters(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("requests")
		const requests = 3
		replies := b.queue("replies", sessions, lockFor(time.Minute))
		server := b.later(func() error {
			c := b.clientAt(1)
			r := c.receiver("requests")
			var s *sender
			for range 20 * requests {
				m, err := r.try(time.Minute)
				if err != nil || m == nil {
					return fmt.Errorf("serve: %w", err)
				}
				p := m.Properties
				if p.ReplyTo == nil || p.ReplyToGroupID == nil {
					return fmt.Errorf("%q says not where its reply belongs", m.text())
				}
				if s == nil {
					if s, err = c.trySender(*p.ReplyTo); err != nil {
						return err
					}
				}
				if err := s.try(message("reply to "+m.text(), inSession(*p.ReplyToGroupID))); err != nil {
					return err
				}
				if err := m.tryComplete(); err != nil {
					return err
				}
			}
			return nil
		})
		var waits []<-chan error
		for i := range 20 {
			c, id := b.clientAt(i%3), guid(i)
			waits = append(waits, b.later(func() error {
				r, err := c.tryAccept("replies", id, 0)
				if err != nil {
					return err
				}
				s, err := c.trySender("requests")
				if err != nil {
					return err
				}
				for n := range requests {
					m := message(fmt.Sprint("request ", n, " of requester ", i))
					m.Properties.ReplyTo, m.Properties.ReplyToGroupID = &replies, &id
					if err := s.try(m); err != nil {
						return err
					}
				}
				for n := range requests {
					m, err := r.try(time.Minute)
					if err != nil || m == nil {
						return fmt.Errorf("%s got %v: %w", id, m, err)
					}
					if err := want1(m.text(), fmt.Sprint("reply to request ", n, " of requester ", i)); err != nil {
						return err
					}
					if err := m.tryComplete(); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, w := range waits {
			b.must("request and reply", <-w)
		}
		b.must("serve", <-server)
		want(b, "replies that nobody got", len(b.client().peekAll(replies)), 0)
	})
}

// guid is what a requester picks for its session.
func guid(n int) string {
	return goamqp.UUID{0x5b, 0x12, 0x9a, 0x40, 0, 0, 0x40, 0, 0x80, 14: byte(n >> 8), 15: byte(n)}.String()
}

// S-86: the properties of a request say where its reply belongs, and a reply whose session has no holder
// yet waits for the requester that picked it; a requester gets the replies of nobody else.
func TestAReplyWaitsForItsRequester(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("requests")
		b.queue("replies", sessions, lockFor(time.Minute))
		mine, theirs, to := guid(1), guid(2), "replies"
		c := b.clientAt(0)
		request := message("request")
		request.Properties.ReplyTo, request.Properties.ReplyToGroupID = &to, &mine
		c.sender("requests").send(request)
		m := b.clientAt(1).receiver("requests").one()
		want(b, "ReplyTo", *m.Properties.ReplyTo, "replies")
		want(b, "ReplyToSessionId", *m.Properties.ReplyToGroupID, mine)
		other := b.clientAt(2).accept("replies", theirs, 0)
		sendTo(c, *m.Properties.ReplyTo, *m.Properties.ReplyToGroupID, "reply")
		other.none(5 * time.Second)
		r := c.accept("replies", mine, 0)
		want(b, "reply", r.one().text(), "reply")
	})
}

// T-157; S-87
func TestT157AGenericHandlerTakesOnlyFreeSessions(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		mine := b.clientAt(0).accept("q", "mine", 0)
		s := b.client()
		sendTo(s, "q", "mine", "for me")
		sendTo(s, "q", "free", "for anybody")
		r := b.clientAt(1).accept("q", nil, 5*time.Second)
		want(b, "session", r.held(), "free")
		want(b, "mine", mine.one().text(), "for me")
	})
}
