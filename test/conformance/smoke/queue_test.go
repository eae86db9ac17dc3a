package smoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func queueCRUD(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: p("PT45S"), MaxDeliveryCount: p(int32(7)), UserMetadata: p("meta")})
	g, err := e.a.GetQueue(e.ctx, q, nil)
	e.must("get", err)
	e.check(g != nil, "GetQueue returned nil right after create")
	e.check(str(g.LockDuration) == "PT45S" && g.MaxDeliveryCount != nil && *g.MaxDeliveryCount == 7 && str(g.UserMetadata) == "meta",
		"properties did not round-trip: lock %s, metadata %s", str(g.LockDuration), str(g.UserMetadata))
	g.MaxDeliveryCount = p(int32(11))
	u, err := e.a.UpdateQueue(e.ctx, q, g.QueueProperties, nil)
	e.must("update", err)
	e.check(*u.MaxDeliveryCount == 11, "update did not stick")
	seen := false
	for pg := e.a.NewListQueuesPager(nil); pg.More(); {
		page, err := pg.NextPage(e.ctx)
		e.must("list", err)
		for _, it := range page.Queues {
			seen = seen || strings.EqualFold(it.QueueName, q)
		}
	}
	e.check(seen, "queue not in list")
	_, err = e.a.CreateQueue(e.ctx, q, nil)
	e.check(err != nil && strings.Contains(err.Error(), "409"), "second create must be 409, got %v", err)
	_, err = e.a.DeleteQueue(e.ctx, q, nil)
	e.must("delete", err)
	g, err = e.a.GetQueue(e.ctx, q, nil)
	e.must("get after delete", err)
	e.check(g == nil, "queue still there after delete")
}

func sendReceiveComplete(e *env) {
	q := e.queue(nil)
	e.send(e.sender(q), msg("hello"))
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "hello", "body %q", m.Body)
	e.check(m.DeliveryCount == 1, "delivery count %d", m.DeliveryCount)
	e.check(m.SequenceNumber != nil && m.EnqueuedTime != nil && m.LockedUntil != nil && m.LockToken != [16]byte{}, "broker-set properties are missing")
	e.check(m.MessageID != "", "no message id")
	e.check(m.LockedUntil.After(time.Now()), "locked until %s is past", m.LockedUntil)
	e.complete(r, m)
	e.none(r, 1500*time.Millisecond)
}

func batchFIFO(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	b, err := s.NewMessageBatch(e.ctx, nil)
	e.must("new batch", err)
	const n = 200
	for i := range n {
		e.must("add", b.AddMessage(msg(fmt.Sprintf("%04d", i)), nil))
	}
	e.must("send batch", s.SendMessageBatch(e.ctx, b, nil))
	r := e.receiver(q, nil)
	ms := e.take(r, n, 20*time.Second)
	last := int64(-1)
	for i, m := range ms {
		e.check(string(m.Body) == fmt.Sprintf("%04d", i), "position %d holds %q: order lost", i, m.Body)
		e.check(*m.SequenceNumber > last, "sequence numbers not ascending at %d", i)
		last = *m.SequenceNumber
	}
	e.complete(r, ms...)
	e.none(r, time.Second)
}

func propsRoundtrip(e *env) {
	q := e.queue(nil)
	at := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	in := &azservicebus.Message{
		Body: []byte{0, 1, 2, 255}, ContentType: p("application/octet-stream"), CorrelationID: p("corr"), MessageID: p("mid-1"),
		ReplyTo: p("rt"), ReplyToSessionID: p("rts"), Subject: p("subj"), To: p("to"), TimeToLive: p(90 * time.Second), PartitionKey: p("pk"),
		ApplicationProperties: map[string]any{"s": "x", "i": int64(-5), "d": 1.5, "b": true, "t": at, "u8": uint8(7), "i32": int32(9), "bin": []byte("z")},
	}
	e.send(e.sender(q), in)
	r := e.receiver(q, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	m := e.one(r, wait)
	e.check(bytes.Equal(m.Body, in.Body), "body %v", m.Body)
	for _, x := range []struct{ n, got, want string }{
		{"content-type", str(m.ContentType), "application/octet-stream"}, {"correlation-id", str(m.CorrelationID), "corr"},
		{"message-id", m.MessageID, "mid-1"}, {"reply-to", str(m.ReplyTo), "rt"}, {"reply-to-session", str(m.ReplyToSessionID), "rts"},
		{"subject", str(m.Subject), "subj"}, {"to", str(m.To), "to"}, {"partition-key", str(m.PartitionKey), "pk"},
	} {
		e.check(x.got == x.want, "%s is %q, want %q", x.n, x.got, x.want)
	}
	e.check(m.TimeToLive != nil && *m.TimeToLive == 90*time.Second, "ttl %v", m.TimeToLive)
	e.check(m.ExpiresAt != nil && m.ExpiresAt.Equal(m.EnqueuedTime.Add(*m.TimeToLive)), "expires-at is not enqueued+ttl")
	for k, want := range map[string]any{"s": "x", "i": int64(-5), "d": 1.5, "b": true, "u8": uint8(7), "i32": int32(9)} {
		e.check(m.ApplicationProperties[k] == want, "property %s is %#v, want %#v", k, m.ApplicationProperties[k], want)
	}
	got, ok := m.ApplicationProperties["t"].(time.Time)
	e.check(ok && got.Equal(at), "timestamp property %v", m.ApplicationProperties["t"])
}

func bigBody(e *env) {
	q := e.queue(nil)
	body := bytes.Repeat([]byte("0123456789abcdef"), 200*1024/16)
	e.send(e.sender(q), &azservicebus.Message{Body: body})
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.check(bytes.Equal(m.Body, body), "200 KiB body came back changed (%d bytes)", len(m.Body))
	e.complete(r, m)
}

func tooLarge(e *env) {
	q := e.queue(nil)
	err := e.sender(q).SendMessage(e.ctx, &azservicebus.Message{Body: make([]byte, 2<<20)}, nil)
	e.check(errors.Is(err, azservicebus.ErrMessageTooLarge), "2 MiB send: %v, want ErrMessageTooLarge", err)
}

func notFound(e *env) {
	err := e.sender(e.prefix+"-none").SendMessage(e.ctx, msg("x"), nil)
	e.check(code(err) == azservicebus.CodeNotFound, "send to a missing queue: %v", err)
	_, err = e.receiver(e.prefix+"-none", nil).ReceiveMessages(e.ctx, 1, nil)
	e.check(code(err) == azservicebus.CodeNotFound, "receive from a missing queue: %v", err)
	_, err = e.subReceiver(e.prefix+"-none", "s", nil).PeekMessages(e.ctx, 1, nil)
	e.check(code(err) == azservicebus.CodeNotFound, "peek at a missing subscription: %v", err)
	_, err = e.c.AcceptSessionForQueue(e.ctx, e.prefix+"-none", "s", nil)
	e.check(code(err) == azservicebus.CodeNotFound, "accept a session of a missing queue: %v", err)
}

func longPoll(e *env) {
	q := e.queue(nil)
	s, r := e.sender(q), e.receiver(q, nil)
	e.none(r, time.Second) // links are up, nothing there
	go func() {
		time.Sleep(2 * time.Second)
		_ = s.SendMessage(e.ctx, msg("late"), nil)
	}()
	start := time.Now()
	m := e.one(r, wait)
	took := time.Since(start)
	e.check(took > 1500*time.Millisecond && took < 5*time.Second, "message sent after 2 s arrived after %s", took)
	e.complete(r, m)
}

func receiveAndDelete(e *env) {
	q := e.queue(nil)
	e.send(e.sender(q), msg("a"), msg("b"))
	r := e.receiver(q, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	e.take(r, 2, wait)
	e.must("close", r.Close(e.ctx))
	e.none(e.receiver(q, nil), 1500*time.Millisecond)
}

func abandonProps(e *env) {
	q := e.queue(nil)
	e.send(e.sender(q), msg("x"))
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.must("abandon", r.AbandonMessage(e.ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"why": "because"}}))
	m2 := e.one(r, wait)
	e.check(m2.DeliveryCount == 2, "delivery count %d, want 2", m2.DeliveryCount)
	e.check(m2.ApplicationProperties["why"] == "because", "property not modified: %v", m2.ApplicationProperties)
	e.check(*m2.SequenceNumber == *m.SequenceNumber, "sequence number changed on abandon")
	e.complete(r, m2)
}

func deadLetter(e *env) {
	q := e.queue(nil)
	e.send(e.sender(q), &azservicebus.Message{Body: []byte("bad"), MessageID: p("dl-1")})
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, m, &azservicebus.DeadLetterOptions{
		Reason: p("reason-x"), ErrorDescription: p("description-y"), PropertiesToModify: map[string]any{"added": int64(1)}}))
	e.none(r, time.Second)
	d := e.dlq(q)
	g := e.one(d, wait)
	e.check(string(g.Body) == "bad" && g.MessageID == "dl-1", "dlq holds %q", g.Body)
	e.check(str(g.DeadLetterReason) == "reason-x" && str(g.DeadLetterErrorDescription) == "description-y",
		"reason %q description %q", str(g.DeadLetterReason), str(g.DeadLetterErrorDescription))
	e.check(g.ApplicationProperties["added"] == int64(1), "property not added: %v", g.ApplicationProperties)
	e.complete(d, g)
	e.none(d, time.Second)
}

func peek(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	for i := range 5 {
		e.send(s, msg(fmt.Sprint(i)))
	}
	r := e.receiver(q, nil)
	a, err := r.PeekMessages(e.ctx, 3, nil)
	e.must("peek", err)
	b, err := r.PeekMessages(e.ctx, 3, nil)
	e.must("peek", err)
	e.check(slices.Equal(bodies(append(a, b...)), []string{"0", "1", "2", "3", "4"}), "peeked %v + %v", bodies(a), bodies(b))
	c, err := r.PeekMessages(e.ctx, 2, &azservicebus.PeekMessagesOptions{FromSequenceNumber: a[1].SequenceNumber})
	e.must("peek from", err)
	e.check(slices.Equal(bodies(c), []string{"1", "2"}), "peek from seq: %v", bodies(c))
	ms := e.take(r, 5, wait)
	for _, m := range ms {
		e.check(m.DeliveryCount == 1, "peek raised the delivery count to %d", m.DeliveryCount)
	}
	e.complete(r, ms...)
	none, err := r.PeekMessages(e.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: p(int64(0))})
	e.must("peek empty", err)
	e.check(len(none) == 0, "peek of an empty queue returned %d", len(none))
}

func renewLock(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: p("PT5S")})
	e.send(e.sender(q), msg("x"))
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	old := *m.LockedUntil
	for range 3 {
		time.Sleep(3 * time.Second)
		e.must("renew", r.RenewMessageLock(e.ctx, m, nil))
		e.check(m.LockedUntil.After(old), "locked-until did not move")
		old = *m.LockedUntil
	}
	e.must("complete after 9 s on a 5 s lock", r.CompleteMessage(e.ctx, m, nil))
	m.LockToken = [16]byte{9}
	err := r.RenewMessageLock(e.ctx, m, nil)
	e.check(code(err) == azservicebus.CodeLockLost, "renewing a bogus token: %v", err)
}

func lockExpiry(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: p("PT5S")})
	e.send(e.sender(q), msg("x"))
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	time.Sleep(6500 * time.Millisecond)
	err := r.CompleteMessage(e.ctx, m, nil)
	e.check(code(err) == azservicebus.CodeLockLost, "complete after the lock expired: %v, want CodeLockLost", err)
	m2 := e.one(r, wait)
	e.check(m2.DeliveryCount == 2, "delivery count %d, want 2", m2.DeliveryCount)
	e.check(m2.LockToken != m.LockToken, "same lock token on redelivery")
	e.complete(r, m2)
}

func settleElsewhere(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: p("PT1M")})
	e.send(e.sender(q), msg("done"), msg("again"))
	r1 := e.receiver(q, nil)
	ms := e.take(r1, 2, wait)
	e.must("close first receiver", r1.Close(e.ctx))
	r2 := e.receiver(q, nil)
	e.none(r2, 1500*time.Millisecond) // still locked although their link is gone
	e.must("complete by lock token", r2.CompleteMessage(e.ctx, &azservicebus.ReceivedMessage{LockToken: ms[0].LockToken}, nil))
	e.must("abandon by lock token", r2.AbandonMessage(e.ctx, &azservicebus.ReceivedMessage{LockToken: ms[1].LockToken}, nil))
	m := e.one(r2, wait)
	e.check(string(m.Body) == "again" && m.DeliveryCount == 2, "got %q with delivery count %d", m.Body, m.DeliveryCount)
	e.complete(r2, m)
	e.none(r2, time.Second)
}

func maxDelivery(e *env) {
	q := e.queue(&admin.QueueProperties{MaxDeliveryCount: p(int32(3))})
	e.send(e.sender(q), msg("poison"))
	r := e.receiver(q, nil)
	for i := 1; i <= 3; i++ {
		m := e.one(r, wait)
		e.check(int(m.DeliveryCount) == i, "delivery %d has count %d", i, m.DeliveryCount)
		e.must("abandon", r.AbandonMessage(e.ctx, m, nil))
	}
	e.none(r, 1500*time.Millisecond)
	d := e.dlq(q)
	m := e.one(d, wait)
	e.check(str(m.DeadLetterReason) == "MaxDeliveryCountExceeded", "reason %q", str(m.DeadLetterReason))
	e.complete(d, m)
}

func competing(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	const n = 300
	b, err := s.NewMessageBatch(e.ctx, nil)
	e.must("batch", err)
	for i := range n {
		e.must("add", b.AddMessage(msg(fmt.Sprint(i)), nil))
	}
	e.must("send", s.SendMessageBatch(e.ctx, b, nil))
	var (
		mu   sync.Mutex
		seen = map[string]int{}
		wg   sync.WaitGroup
		bad  error
	)
	for range 4 {
		r := e.receiver(q, nil)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				ctx, cancel := context.WithTimeout(e.ctx, 3*time.Second)
				ms, err := r.ReceiveMessages(ctx, 20, nil)
				cancel()
				if len(ms) == 0 && err != nil {
					return
				}
				for _, m := range ms {
					if err := r.CompleteMessage(e.ctx, m, nil); err != nil {
						mu.Lock()
						bad = err
						mu.Unlock()
						return
					}
					mu.Lock()
					seen[string(m.Body)]++
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
	e.must("complete", bad)
	e.check(len(seen) == n, "%d of %d distinct messages arrived", len(seen), n)
	for k, c := range seen {
		e.check(c == 1, "message %s completed %d times", k, c)
	}
}
