package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// S-259, S-260
func queueLifecycle(e *env) {
	name := e.queue(&admin.QueueProperties{
		LockDuration: to("PT45S"), MaxDeliveryCount: to(int32(7)), UserMetadata: to("note"),
	})
	a := e.admin(1) // another node than the one that created it
	g, err := a.GetQueue(e.ctx, name, nil)
	e.must("get", err)
	e.check(g != nil, "the queue is unknown right after its creation")
	e.check(deref(g.LockDuration) == "PT45S" && *g.MaxDeliveryCount == 7 && deref(g.UserMetadata) == "note",
		"properties did not come back: lock %s, metadata %s", deref(g.LockDuration), deref(g.UserMetadata))

	upper, err := a.GetQueue(e.ctx, strings.ToUpper(name), nil)
	e.must("get in capitals", err)
	e.check(upper != nil, "names must compare without case")

	g.MaxDeliveryCount = to(int32(11))
	u, err := a.UpdateQueue(e.ctx, name, g.QueueProperties, nil)
	e.must("update", err)
	e.check(*u.MaxDeliveryCount == 11, "the update answered %d", *u.MaxDeliveryCount)

	_, err = e.admin(2).CreateQueue(e.ctx, name, nil)
	e.check(err != nil && strings.Contains(err.Error(), "409"), "a second create gave %v, want 409", err)

	e.check(slices.Contains(e.list(a), name), "the queue is not in the list")
	c := e.client(0)
	e.send(e.sender(c, name), text("of the first queue"))
	_, err = a.DeleteQueue(e.ctx, name, nil)
	e.must("delete", err)
	for i := range 3 {
		g, err = e.admin(i).GetQueue(e.ctx, name, nil)
		e.must("get after delete", err)
		e.check(g == nil, "node %d still knows the deleted queue", i)
	}
	e.check(!slices.Contains(e.list(a), name), "the deleted queue is still in the list")

	_, err = a.CreateQueue(e.ctx, name, nil)
	e.must("create the name again", err)
	fresh := e.client(1)
	e.none(e.receiver(fresh, name, nil))
	e.send(e.sender(fresh, name), text("of the second queue"))
	m := e.one(e.receiver(fresh, name, nil))
	e.check(string(m.Body) == "of the second queue" && *m.SequenceNumber == 1,
		"the second queue of the name gave %q with number %d", m.Body, *m.SequenceNumber)
}

func (e *env) list(a *admin.Client) []string {
	var names []string
	for pages := a.NewListQueuesPager(nil); pages.More(); {
		page, err := pages.NextPage(e.ctx)
		e.must("list", err)
		for _, q := range page.Queues {
			names = append(names, q.QueueName)
		}
	}
	return names
}

// S-2; RUL-6
func missingQueue(e *env) {
	name, c := e.name(), e.client(0)
	err := e.sender(c, name).SendMessage(e.ctx, text("x"), nil)
	e.wantCode("send", err, azservicebus.CodeNotFound)
	_, err = e.receiver(c, name, nil).ReceiveMessages(e.ctx, 1, nil)
	e.wantCode("receive", err, azservicebus.CodeNotFound)
	_, err = c.AcceptSessionForQueue(e.ctx, name, "s", nil)
	e.wantCode("accept", err, azservicebus.CodeNotFound)
	g, err := e.admin(0).GetQueue(e.ctx, name, nil)
	e.must("get", err)
	e.check(g == nil, "a queue that nobody created has properties")
}

// S-13, S-88, S-150; T-1
func sendReceiveComplete(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(1), q), text("hello"))
	r := e.receiver(e.client(2), q, nil)
	m := e.one(r)
	e.check(string(m.Body) == "hello", "body %q", m.Body)
	e.check(m.DeliveryCount == 1, "delivery count %d, want 1", m.DeliveryCount)
	e.check(m.SequenceNumber != nil && *m.SequenceNumber == 1, "sequence number %v, want 1", m.SequenceNumber)
	e.check(m.EnqueuedTime != nil && m.LockedUntil != nil && m.LockToken != [16]byte{},
		"what the broker sets is missing")
	e.check(m.LockedUntil.After(time.Now()), "locked until %s, which is past", m.LockedUntil)
	e.check(m.MessageID != "", "no message id")
	e.complete(r, m)
	e.none(r)
}

// S-27, S-32
func propertiesRoundTrip(e *env) {
	q := e.queue(nil)
	at := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	in := &azservicebus.Message{
		Body: []byte{0, 1, 2, 255}, ContentType: to("application/octet-stream"), CorrelationID: to("corr"),
		MessageID: to("mid-1"), ReplyTo: to("rt"), ReplyToSessionID: to("rts"), Subject: to("subj"),
		To: to("to"), TimeToLive: to(90 * time.Second), SessionID: to("only data"),
		ApplicationProperties: map[string]any{"s": "ü", "i": int64(-5), "d": 1.5, "b": true, "t": at,
			"u8": uint8(7), "i32": int32(9)},
	}
	e.send(e.sender(e.client(0), q), in)
	m := e.one(e.receiver(e.client(1), q, nil))
	e.check(bytes.Equal(m.Body, in.Body), "body %v", m.Body)
	for _, p := range []struct{ name, got, want string }{
		{"content-type", deref(m.ContentType), "application/octet-stream"},
		{"correlation-id", deref(m.CorrelationID), "corr"}, {"message-id", m.MessageID, "mid-1"},
		{"reply-to", deref(m.ReplyTo), "rt"}, {"reply-to-session", deref(m.ReplyToSessionID), "rts"},
		{"subject", deref(m.Subject), "subj"}, {"to", deref(m.To), "to"},
		{"session", deref(m.SessionID), "only data"},
	} {
		e.check(p.got == p.want, "%s is %q, want %q", p.name, p.got, p.want)
	}
	e.check(m.TimeToLive != nil && *m.TimeToLive == 90*time.Second, "time to live %v", m.TimeToLive)
	for k, want := range map[string]any{"s": "ü", "i": int64(-5), "d": 1.5, "b": true, "u8": uint8(7), "i32": int32(9)} {
		e.check(m.ApplicationProperties[k] == want, "property %s is %#v, want %#v", k, m.ApplicationProperties[k], want)
	}
	got, ok := m.ApplicationProperties["t"].(time.Time)
	e.check(ok && got.Equal(at), "timestamp property %v", m.ApplicationProperties["t"])
}

// S-99, S-138; T-56; RUL-9
func batchLimit(e *env) {
	q := e.queue(nil)
	s := e.sender(e.client(0), q)
	b, err := s.NewMessageBatch(e.ctx, nil)
	e.must("new batch", err)
	body := bytes.Repeat([]byte{'x'}, 16<<10)
	n := 0
	for ; n < 200; n++ {
		err := b.AddMessage(&azservicebus.Message{Body: append([]byte(fmt.Sprintf("%04d", n)), body...)}, nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) {
			break
		}
		e.must("add", err)
	}
	e.check(n > 50 && n < 70, "%d messages of 16 KiB fit, want what a limit of 1 MiB holds", n)
	e.must("send the full batch", s.SendMessageBatch(e.ctx, b, nil))
	r := e.receiver(e.client(1), q, nil)
	ms := e.take(r, n)
	for i, m := range ms {
		e.check(string(m.Body[:4]) == fmt.Sprintf("%04d", i), "position %d holds %q", i, m.Body[:4])
		e.check(*m.SequenceNumber == int64(i+1), "message %d has number %d", i, *m.SequenceNumber)
	}
	e.complete(r, ms...)
}

// S-132
func messageTooLarge(e *env) {
	q := e.queue(nil)
	c := e.client(0)
	err := e.sender(c, q).SendMessage(e.ctx, &azservicebus.Message{Body: make([]byte, 2<<20)}, nil)
	e.check(errors.Is(err, azservicebus.ErrMessageTooLarge), "2 MiB: %v, want ErrMessageTooLarge", err)
	e.send(e.sender(c, q), text("small"))
	m := e.one(e.receiver(c, q, nil))
	e.check(string(m.Body) == "small" && *m.SequenceNumber == 1, "the refused message left a trace")
}

// S-144; T-33
func longPoll(e *env) {
	q := e.queue(nil)
	r := e.receiver(e.client(1), q, nil)
	e.none(r) // the links are up
	s := e.sender(e.client(0), q)
	e.send(s, text("link")) // and the sender's too
	e.complete(r, e.one(r))
	failed := make(chan error, 1)
	timer := time.AfterFunc(time.Second, func() { failed <- s.SendMessage(e.ctx, text("late"), nil) })
	defer timer.Stop()
	m := e.one(r)
	e.check(string(m.Body) == "late", "got %q", m.Body)
	e.must("send", <-failed)
	e.complete(r, m)
}

// S-6, S-246, S-247; T-31
func peek(e *env) {
	q := e.queue(nil)
	s := e.sender(e.client(0), q)
	for i := range 5 {
		e.send(s, text(fmt.Sprint(i)))
	}
	r := e.receiver(e.client(1), q, nil)
	locked := e.one(r)
	first, err := r.PeekMessages(e.ctx, 3, nil)
	e.must("peek", err)
	second, err := r.PeekMessages(e.ctx, 3, nil)
	e.must("peek on", err)
	all := append(first, second...)
	e.check(slices.Equal(bodies(all), []string{"0", "1", "2", "3", "4"}), "peeked %v", bodies(all))
	for _, m := range all {
		e.check(m.State == azservicebus.MessageStateActive, "state %v", m.State)
		e.check(m.LockedUntil == nil, "peek told locked-until %v", m.LockedUntil)
	}
	from, err := r.PeekMessages(e.ctx, 2, &azservicebus.PeekMessagesOptions{FromSequenceNumber: all[1].SequenceNumber})
	e.must("peek from a number", err)
	e.check(slices.Equal(bodies(from), []string{"1", "2"}), "peeked %v", bodies(from))
	rest := e.take(r, 4)
	for _, m := range rest {
		e.check(m.DeliveryCount == 1, "peek raised the delivery count to %d", m.DeliveryCount)
	}
	e.complete(r, append(rest, locked)...)
	none, err := r.PeekMessages(e.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to(int64(0))})
	e.must("peek at nothing", err)
	e.check(len(none) == 0, "peeked %v in an empty queue", bodies(none))
}

// S-92, S-93, S-313; RUL-21
func partitioned(e *env) {
	q := e.queue(&admin.QueueProperties{EnablePartitioning: to(true)})
	s := e.sender(e.client(0), q)
	const n = 60
	for i := range n {
		key := fmt.Sprint("key-", i%12)
		e.send(s, &azservicebus.Message{Body: []byte(fmt.Sprint(i)), PartitionKey: &key})
	}
	r := e.receiver(e.client(1), q, nil)
	numbers, got := map[int64]bool{}, map[string]bool{}
	last := map[string]int{}
	for _, m := range e.takeAtOnce(r, n) {
		e.check(!numbers[*m.SequenceNumber], "number %d twice", *m.SequenceNumber)
		e.check(*m.SequenceNumber>>48 > 0, "number %d carries no partition", *m.SequenceNumber)
		numbers[*m.SequenceNumber], got[string(m.Body)] = true, true
		var i int
		_, err := fmt.Sscan(string(m.Body), &i)
		e.must("body", err)
		key := deref(m.PartitionKey)
		e.check(last[key] <= i, "message %d of %s came after %d", i, key, last[key])
		last[key] = i
		e.complete(r, m)
	}
	e.check(len(got) == n, "%d of %d messages came", len(got), n)
	e.none(r)
}
