package main

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

func sending() map[string]scenario {
	return map[string]scenario{
		"send-one": func(e *env) {
			q := e.queue(nil)
			e.send(0, q, text("hello"))
			r := e.receiver(1, q)
			m := e.one(r)
			e.equal("body", string(m.Body), "hello")
			e.complete(r, m)
			e.none(r)
		},
		"send-properties": sendProperties,
		"send-body-kinds": sendBodyKinds,
		"send-empty": func(e *env) {
			q := e.queue(nil)
			e.send(0, q, &azservicebus.Message{Subject: to("nothing")})
			m := e.one(e.receiver(1, q))
			e.equal("body and subject", []string{string(m.Body), deref(m.Subject)}, []string{"", "nothing"})
		},
		"send-id": func(e *env) {
			q := e.queue(nil)
			for _, id := range []string{"order-1", strings.Repeat("ü", 60), strings.Repeat("x", 128)} {
				e.send(0, q, &azservicebus.Message{Body: []byte(id), MessageID: &id})
			}
			for _, m := range e.take(e.receiver(1, q), 3) {
				e.equal("id", m.MessageID, string(m.Body))
			}
		},
		"send-many": func(e *env) {
			q, want := filled(e, 50)
			r := e.receiver(1, q)
			got := e.take(r, 50)
			e.equal("bodies", bodies(got), want)
			e.complete(r, got...)
		},
		"send-batch": sendBatch,
		"send-large": func(e *env) {
			q := e.queue(nil)
			body := make([]byte, 900<<10)
			for i := range body {
				body[i] = byte(i * 7)
			}
			e.send(0, q, &azservicebus.Message{Body: body})
			r := e.receiver(1, q)
			m := e.one(r)
			e.check(bytes.Equal(m.Body, body), "the body came back changed, %d bytes", len(m.Body))
			e.complete(r, m)
		},
		"send-too-large": func(e *env) {
			q := e.queue(nil)
			s := e.sender(0, q)
			err := s.SendMessage(e.ctx, &azservicebus.Message{Body: make([]byte, 2<<20)}, nil)
			e.check(errors.Is(err, azservicebus.ErrMessageTooLarge), "2 MiB: %v, want ErrMessageTooLarge", err)
			e.must("send", s.SendMessage(e.ctx, text("small"), nil))
			m := e.one(e.receiver(0, q))
			e.equal("body and number", []any{string(m.Body), *m.SequenceNumber}, []any{"small", int64(1)})
		},
		"send-pipelined": sendPipelined,
		"send-missing": func(e *env) {
			s := e.sender(0, e.name("q"))
			e.missing("send", s.SendMessage(e.ctx, text("x"), nil))
			_, err := s.ScheduleMessages(e.ctx, []*azservicebus.Message{text("x")}, time.Now().Add(time.Minute), nil)
			e.missing("schedule", err)
		},
		"send-partitioned": sendPartitioned,
	}
}

// filled is a queue with n messages, and their bodies.
func filled(e *env, n int) (queue string, want []string) {
	queue = e.queue(nil)
	e.batch(0, queue, n)
	for i := range n {
		want = append(want, fmt.Sprintf("m%d", i))
	}
	return queue, want
}

// batch sends m0 to the one before n in one transfer.
func (e *env) batch(i int, entity string, n int) {
	var all []*azservicebus.Message
	for k := range n {
		all = append(all, text(fmt.Sprintf("m%d", k)))
	}
	e.together(i, entity, all...)
}

// together sends messages in one transfer.
func (e *env) together(i int, entity string, messages ...*azservicebus.Message) {
	s := e.sender(i, entity)
	b, err := s.NewMessageBatch(e.ctx, nil)
	e.must("new batch", err)
	for _, m := range messages {
		e.must("add to the batch", b.AddMessage(m, nil))
	}
	e.must("send the batch", s.SendMessageBatch(e.ctx, b, nil))
}

func sendProperties(e *env) {
	q := e.queue(nil)
	at := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	e.send(0, q, &azservicebus.Message{Body: []byte("x"), ContentType: to("text/plain"), CorrelationID: to("corr"),
		MessageID: to("mid-1"), Subject: to("subj"), To: to("to"), ReplyTo: to("rt"), ReplyToSessionID: to("rts"),
		SessionID: to("only data"), PartitionKey: to("only data"), TimeToLive: to(90 * time.Second),
		ApplicationProperties: map[string]any{"s": "ü", "i": int64(-5), "i32": int32(9), "d": 1.5, "b": true,
			"u8": uint8(7), "t": at}})
	m := e.one(e.receiver(1, q))
	e.equal("properties",
		[]string{string(m.Body), deref(m.ContentType), deref(m.CorrelationID), m.MessageID, deref(m.Subject), deref(m.To),
			deref(m.ReplyTo), deref(m.ReplyToSessionID), deref(m.SessionID), deref(m.PartitionKey), deref(m.TimeToLive).String()},
		[]string{"x", "text/plain", "corr", "mid-1", "subj", "to", "rt", "rts", "only data", "only data", "1m30s"})
	for k, want := range map[string]any{"s": "ü", "i": int64(-5), "i32": int32(9), "d": 1.5, "b": true, "u8": uint8(7)} {
		e.equal("property "+k, m.ApplicationProperties[k], want)
	}
	got, ok := m.ApplicationProperties["t"].(time.Time)
	e.check(ok && got.Equal(at), "the time %v", m.ApplicationProperties["t"])
	e.equal("lives for", m.ExpiresAt.Sub(*m.EnqueuedTime), 90*time.Second)
}

func sendBodyKinds(e *env) {
	q := e.queue(nil)
	kinds := []azservicebus.AMQPAnnotatedMessageBody{
		{Data: [][]byte{{0, 1}, {254, 255}}},
		{Value: map[string]any{"word": "text", "number": int64(3)}},
		{Sequence: [][]any{{"a", int64(1)}, {"b", true}}},
	}
	s := e.sender(0, q)
	for _, k := range kinds {
		e.must("send", s.SendAMQPAnnotatedMessage(e.ctx, &azservicebus.AMQPAnnotatedMessage{Body: k}, nil))
	}
	for i, m := range e.take(e.receiver(1, q), 3) {
		e.equal("body", m.RawAMQPMessage.Body, kinds[i])
	}
}

func sendBatch(e *env) {
	q := e.queue(nil)
	s := e.sender(0, q)
	b, err := s.NewMessageBatch(e.ctx, nil)
	e.must("new batch", err)
	filler := strings.Repeat("x", 16<<10)
	n := 0
	for ; n < 200; n++ {
		err := b.AddMessage(text(fmt.Sprintf("%d:%s", n, filler)), nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) {
			break
		}
		e.must("add", err)
	}
	e.check(n > 50 && n < 70, "%d messages of 16 KiB fit, want what a limit of 1 MiB holds", n)
	e.equal("messages of the batch", b.NumMessages(), int32(n))
	e.must("send the full batch", s.SendMessageBatch(e.ctx, b, nil))
	r := e.receiver(1, q)
	got := e.take(r, n)
	for i, m := range got {
		e.check(strings.HasPrefix(string(m.Body), fmt.Sprintf("%d:", i)), "position %d holds %.8s", i, m.Body)
	}
	e.complete(r, got...)
	small, err := s.NewMessageBatch(e.ctx, &azservicebus.MessageBatchOptions{MaxBytes: 1000})
	e.must("new small batch", err)
	err = small.AddMessage(text(strings.Repeat("y", 2000)), nil)
	e.check(errors.Is(err, azservicebus.ErrMessageTooLarge), "2,000 bytes into 1,000: %v", err)
}

func sendPipelined(e *env) {
	q := e.queue(nil)
	s := e.sender(0, q)
	errs := make([]error, 500)
	var want []string
	var all sync.WaitGroup
	for i := range errs {
		want = append(want, fmt.Sprintf("m%d", i))
		all.Go(func() { errs[i] = s.SendMessage(e.ctx, text(want[i]), nil) })
	}
	all.Wait()
	e.must("five hundred sends", errors.Join(errs...))
	r := e.receiverOf(1, q, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	got := bodies(e.take(r, 500))
	slices.Sort(got)
	slices.Sort(want)
	e.equal("bodies", got, want)
}

func sendPartitioned(e *env) {
	q := e.queue(&admin.QueueProperties{EnablePartitioning: to(true)})
	const n, keys = 60, 12
	s := e.sender(0, q)
	for i := range n {
		m := text(fmt.Sprintf("%03d", i))
		m.PartitionKey = to(fmt.Sprintf("key-%d", i%keys))
		e.must("send", s.SendMessage(e.ctx, m, nil))
	}
	r := e.receiver(1, q)
	numbers, last := map[int64]bool{}, map[string]string{}
	for range n {
		// One at a time: a call that returns with fewer messages than it asked for leaves credit, and the library
		// releases what that credit brings. A released message comes back behind those already on the wire.
		m := e.one(r)
		e.check(*m.SequenceNumber>>48 > 0, "a number without partition: %d", *m.SequenceNumber)
		numbers[*m.SequenceNumber] = true
		key := deref(m.PartitionKey)
		e.check(last[key] < string(m.Body), "%s came after %s", m.Body, last[key])
		last[key] = string(m.Body)
		e.complete(r, m)
	}
	e.equal("numbers", len(numbers), n)
	e.none(r)
}

func scheduling() map[string]scenario {
	return map[string]scenario{
		"schedule": func(e *env) {
			q, at := e.queue(nil), time.Now().Add(4*time.Second).Truncate(time.Millisecond)
			e.schedule(q, at, "later")
			r := e.receiver(1, q)
			m := e.one(r)
			e.onTime(m, at)
			e.equal("body", string(m.Body), "later")
			e.check(m.ScheduledEnqueueTime.Equal(at), "scheduled for %s, want %s", m.ScheduledEnqueueTime, at)
			e.complete(r, m)
		},
		"schedule-many": func(e *env) {
			q := e.queue(nil)
			numbers := e.schedule(q, time.Now().Add(2*time.Second), "a", "b", "c", "d")
			slices.Sort(numbers)
			e.equal("numbers", len(slices.Compact(numbers)), 4)
			r := e.receiver(1, q)
			got := e.take(r, 4)
			seen := bodies(got)
			slices.Sort(seen)
			e.equal("bodies", seen, []string{"a", "b", "c", "d"})
			e.complete(r, got...)
		},
		"schedule-property": func(e *env) {
			q, at := e.queue(nil), time.Now().Add(3*time.Second).Truncate(time.Millisecond)
			e.send(0, q, &azservicebus.Message{Body: []byte("later"), ScheduledEnqueueTime: &at})
			r := e.receiver(1, q)
			m := e.one(r)
			e.onTime(m, at)
			e.complete(r, m)
		},
		"schedule-cancel": func(e *env) {
			q := e.queue(nil)
			numbers := e.schedule(q, time.Now().Add(12*time.Second), "a", "b", "keep")
			e.must("cancel", e.sender(0, q).CancelScheduledMessages(e.ctx, numbers[:2], nil))
			r := e.receiver(1, q)
			m := e.one(r)
			e.equal("body", string(m.Body), "keep")
			e.complete(r, m)
			e.none(r)
		},
		"schedule-cancel-missing": func(e *env) {
			q := e.queue(nil)
			numbers := e.schedule(q, time.Now().Add(time.Minute), "x")
			s := e.sender(0, q)
			e.must("cancel", s.CancelScheduledMessages(e.ctx, numbers, nil))
			e.told("cancel again", s.CancelScheduledMessages(e.ctx, numbers, nil), "does not exist")
		},
		"ttl-dropped": func(e *env) {
			q := e.queue(nil)
			e.send(0, q, &azservicebus.Message{Body: []byte("short"), TimeToLive: to(time.Second)}, text("long"))
			time.Sleep(1500 * time.Millisecond)
			r := e.receiver(1, q)
			m := e.one(r)
			e.equal("body", string(m.Body), "long")
			e.complete(r, m)
			e.none(r)
			e.none(e.deadLetters(1, q))
		},
		"ttl-dead-letter": func(e *env) {
			q := e.queue(&admin.QueueProperties{DeadLetteringOnMessageExpiration: to(true)})
			e.send(0, q, &azservicebus.Message{Body: []byte("short"), TimeToLive: to(time.Second)})
			r := e.deadLetters(1, q)
			m := e.one(r)
			e.equal("body and reason", []string{string(m.Body), deref(m.DeadLetterReason)},
				[]string{"short", "TTLExpiredException"})
			e.complete(r, m)
		},
		"ttl-default": func(e *env) {
			q := e.queue(&admin.QueueProperties{DefaultMessageTimeToLive: to("PT2S")})
			e.together(0, q, text("a"), &azservicebus.Message{Body: []byte("b"), TimeToLive: to(time.Hour)})
			r := e.receiver(1, q)
			seen := e.peek(r)
			e.equal("peeked", bodies(seen), []string{"a", "b"})
			for _, m := range seen {
				e.check(m.ExpiresAt.Sub(*m.EnqueuedTime) <= 2*time.Second, "%s outlives the queue's limit", m.Body)
			}
			time.Sleep(2500 * time.Millisecond)
			e.none(r)
		},
		"duplicate-dropped": duplicateDropped,
		"duplicate-batch": func(e *env) {
			q := e.queue(&admin.QueueProperties{RequiresDuplicateDetection: to(true)})
			var all []*azservicebus.Message
			for i, id := range []string{"a", "b", "a", "c", "b"} {
				all = append(all, &azservicebus.Message{Body: []byte(fmt.Sprintf("%s%d", id, i)), MessageID: &id})
			}
			e.together(0, q, all...)
			r := e.receiver(1, q)
			got := e.take(r, 3)
			e.equal("bodies", bodies(got), []string{"a0", "b1", "c3"})
			e.complete(r, got...)
			e.none(r)
		},
	}
}

func duplicateDropped(e *env) {
	q := e.queue(&admin.QueueProperties{RequiresDuplicateDetection: to(true),
		DuplicateDetectionHistoryTimeWindow: to("PT1M")})
	e.send(0, q, &azservicebus.Message{Body: []byte("first"), MessageID: to("same")})
	e.send(1, q, &azservicebus.Message{Body: []byte("second"), MessageID: to("same")})
	e.send(0, q, &azservicebus.Message{Body: []byte("other"), MessageID: to("other")})
	r := e.receiver(1, q)
	got := e.take(r, 2)
	e.equal("bodies", bodies(got), []string{"first", "other"})
	e.complete(r, got...)
	e.none(r)
	e.send(1, q, &azservicebus.Message{Body: []byte("third"), MessageID: to("same")})
	e.none(r)
}

func (e *env) schedule(queue string, at time.Time, all ...string) []int64 {
	var messages []*azservicebus.Message
	for _, body := range all {
		messages = append(messages, text(body))
	}
	numbers, err := e.sender(0, queue).ScheduleMessages(e.ctx, messages, at, nil)
	e.must("schedule", err)
	e.equal("numbers", len(numbers), len(all))
	return numbers
}

// onTime fails when a scheduled message came before its time.
func (e *env) onTime(m *azservicebus.ReceivedMessage, at time.Time) {
	e.check(!time.Now().Before(at), "received before its time")
	e.check(!m.EnqueuedTime.Before(at), "enqueued at %s, before %s", m.EnqueuedTime, at)
}

func receiving() map[string]scenario {
	return map[string]scenario{
		"receive-many": func(e *env) {
			q, want := filled(e, 20)
			r := e.receiver(1, q)
			got := e.take(r, 20)
			e.equal("bodies", bodies(got), want)
			e.complete(r, got...)
			e.none(r)
		},
		"receive-waits": func(e *env) {
			q := e.queue(nil)
			r := e.receiver(1, q)
			e.none(r) // the link is up
			late := make(chan error, 1)
			s := e.sender(0, q)
			go func() {
				time.Sleep(500 * time.Millisecond)
				late <- s.SendMessage(e.ctx, text("late"), nil)
			}()
			m := e.one(r)
			e.must("send", <-late)
			e.equal("body", string(m.Body), "late")
			e.complete(r, m)
		},
		"receive-empty": func(e *env) {
			q := e.queue(nil)
			r := e.receiver(0, q)
			for range 3 {
				e.none(r)
			}
			e.send(1, q, text("x"))
			e.complete(r, e.one(r)) // and the link goes on
		},
		"receive-delete": func(e *env) {
			q, want := filled(e, 3)
			r := e.receiverOf(1, q, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			e.equal("bodies", bodies(e.take(r, 3)), want)
			e.must("close", r.Close(e.ctx))
			e.none(e.receiver(0, q))
		},
		"receive-delete-settle": func(e *env) {
			q, _ := filled(e, 2)
			r := e.receiverOf(1, q, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			m := e.one(r)
			e.check(r.CompleteMessage(e.ctx, m, nil) != nil, "what was received and deleted was completed")
			e.check(r.RenewMessageLock(e.ctx, m, nil) != nil, "what was received and deleted was renewed")
			locking := e.receiver(0, q) // whatever else is asked for
			second := e.one(locking)
			e.equal("body", string(second.Body), "m1")
			e.check(second.LockToken != [16]byte{}, "the default is not to lock")
			e.none(r)
			e.complete(locking, second)
		},
		"receive-timeout": receiveTimeout,
		"receive-two": func(e *env) {
			q, want := filled(e, 30)
			a, b := e.receiver(0, q), e.receiver(1, q)
			var got []string
			for range 15 {
				for _, r := range []receiver{a, b} {
					m := e.one(r)
					got = append(got, string(m.Body))
					e.complete(r, m)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			e.equal("bodies", got, want)
			e.none(a)
		},
		"receive-missing": func(e *env) {
			r := e.receiver(0, e.name("q"))
			_, err := r.ReceiveMessages(e.ctx, 1, nil)
			e.missing("receive", err)
			_, err = e.receiver(0, e.name("q")).PeekMessages(e.ctx, 1, nil)
			e.missing("peek", err)
		},
		"receive-counts": receiveCounts,
	}
}

func receiveTimeout(e *env) {
	q := e.queue(nil)
	r := e.receiver(0, q)
	ctx, cancel := context.WithTimeout(e.ctx, 500*time.Millisecond)
	defer cancel()
	_, err := r.ReceiveMessages(ctx, 1, nil)
	e.check(errors.Is(err, context.DeadlineExceeded), "a wait that was broken off: %v", err)
	e.must("close", r.Close(e.ctx)) // what it had asked for, it would still get
	e.send(1, q, text("x"))
	other := e.receiver(1, q)
	m := e.one(other)
	e.equal("body and count", []any{string(m.Body), m.DeliveryCount}, []any{"x", uint32(1)})
	e.complete(other, m)
}

func receiveCounts(e *env) {
	q, before := e.queue(&admin.QueueProperties{LockDuration: to("PT30S")}), time.Now()
	e.send(0, q, text("x"))
	r := e.receiver(1, q)
	m := e.one(r)
	e.equal("number and count", []any{*m.SequenceNumber, m.DeliveryCount}, []any{int64(1), uint32(1)})
	e.equal("state", m.State, azservicebus.MessageStateActive)
	e.check(m.LockToken != [16]byte{} && m.MessageID != "", "what the broker sets is missing")
	e.check(m.EnqueuedTime.Sub(before).Abs() < 30*time.Second, "enqueued at %s", m.EnqueuedTime)
	lock := time.Until(*m.LockedUntil)
	e.check(lock > 15*time.Second && lock < 31*time.Second, "locked for %s", lock)
	e.complete(r, m)
}
