package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// S-28; T-104: labels of the first, middle and last message pass through, and the distance to the first is the
// difference of the numbers.
func sessionLabels(e *env) {
	q := e.sessionQueue("PT1M")
	labels := []string{"start", "content", "content", "end"}
	s := e.sender(e.client(0), q)
	for i, l := range labels {
		m := inSession("S", fmt.Sprint(i))
		m.Subject = to(l)
		e.send(s, m)
	}
	all := e.take(e.accept(e.client(1), q, "S"), len(labels))
	for i, m := range all {
		e.check(deref(m.Subject) == labels[i], "message %d is labelled %s", i, deref(m.Subject))
		e.check(*m.SequenceNumber-*all[0].SequenceNumber == int64(i), "message %d has number %d", i, *m.SequenceNumber)
	}
}

// S-108, S-118, S-130: a list gives a number for each message, in order; a time ten years ahead is taken and
// shown exactly; whoever cancels first has cancelled, and what was delivered is not found.
func schedules(e *env) {
	q := e.queue(nil)
	s := e.sender(e.client(0), q)
	far := time.Now().AddDate(10, 0, 0).UTC().Truncate(time.Millisecond)
	numbers, err := s.ScheduleMessages(e.ctx, []*azservicebus.Message{text("a"), text("b"), text("c")}, far, nil)
	e.must("schedule", err)
	peeked, err := e.receiver(e.client(1), q, nil).PeekMessages(e.ctx, 10, nil)
	e.must("peek", err)
	e.check(len(numbers) == 3 && slices.IsSorted(numbers) && len(peeked) == 3, "numbers %v of %d messages", numbers, len(peeked))
	for i, m := range peeked {
		e.check(*m.SequenceNumber == numbers[i] && string(m.Body) == string("abc"[i]), "%q has number %d, want %d", m.Body,
			*m.SequenceNumber, numbers[i])
		e.check(m.State == azservicebus.MessageStateScheduled && m.ScheduledEnqueueTime.Equal(far), "%q: state %v, due %v",
			m.Body, m.State, m.ScheduledEnqueueTime)
	}
	e.must("cancel", s.CancelScheduledMessages(e.ctx, numbers, nil))
	soonDue, err := s.ScheduleMessages(e.ctx, []*azservicebus.Message{text("d")}, time.Now().Add(time.Second), nil)
	e.must("schedule", err)
	r := e.receiver(e.client(1), q, nil)
	m := e.one(r)
	e.check(string(m.Body) == "d", "got %q, which was cancelled", m.Body)
	err = s.CancelScheduledMessages(e.ctx, soonDue, nil)
	e.wantCode("cancel what was delivered", err, azservicebus.CodeNotFound)
	e.complete(r, m)
	e.none(r)
}

// S-122, S-187: a message comes once for each time that it was scheduled, and a handler schedules the next one.
// A deferred message is fetched when a scheduled note with its number arrives.
func reschedules(e *env) {
	q := e.queue(nil)
	s, r := e.sender(e.client(0), q), e.receiver(e.client(1), q, nil)
	in := func(d time.Duration, body string) {
		m := text(body)
		m.ScheduledEnqueueTime = to(time.Now().Add(d))
		e.send(s, m)
	}
	in(500*time.Millisecond, "0")
	for i := range 3 {
		m := e.one(r)
		e.check(string(m.Body) == fmt.Sprint(i), "%d: got %q", i, m.Body)
		if i < 2 {
			in(500*time.Millisecond, fmt.Sprint(i+1))
		}
		e.complete(r, m)
	}
	e.none(r)

	e.send(s, text("work"))
	m := e.one(r)
	e.must("defer", r.DeferMessage(e.ctx, m, nil))
	in(500*time.Millisecond, fmt.Sprint(*m.SequenceNumber))
	note := e.one(r)
	var number int64
	_, err := fmt.Sscan(string(note.Body), &number)
	e.must("read the note", err)
	deferred, err := r.ReceiveDeferredMessages(e.ctx, []int64{number}, nil)
	e.must("fetch", err)
	e.check(len(deferred) == 1 && string(deferred[0].Body) == "work", "fetched %v", bodies(deferred))
	e.complete(r, deferred[0], note)
}

// S-145: the receiver that was not the first waits on, and gets the next message.
func losersWaitOn(e *env) {
	q := e.queue(nil)
	type result struct {
		who  int
		body string
	}
	got := make(chan result, 2)
	for i := range 2 {
		r := e.receiver(e.client(i), q, nil)
		go func() {
			ctx, cancel := context.WithTimeout(e.ctx, soon)
			defer cancel()
			ms, err := r.ReceiveMessages(ctx, 1, nil)
			if err != nil || len(ms) != 1 {
				got <- result{i, fmt.Sprint(len(ms), err)}
				return
			}
			got <- result{i, string(ms[0].Body)}
		}()
	}
	time.Sleep(quiet / 2)
	s := e.sender(e.client(0), q)
	e.send(s, text("1"))
	first := <-got
	select {
	case r := <-got:
		e.Fatalf("both ended: %+v, %+v", first, r)
	case <-time.After(quiet):
	}
	e.send(s, text("2"))
	second := <-got
	e.check(first.body == "1" && second.body == "2" && first.who != second.who, "%+v, then %+v", first, second)
}

// S-41: of two that wait for the next session one gets it, and the other one waits on for the next.
func waitersForSessions(e *env) {
	q := e.sessionQueue("PT1M")
	got := make(chan string, 2)
	for i := range 2 {
		c := e.client(i)
		go func() {
			ctx, cancel := context.WithTimeout(e.ctx, soon)
			defer cancel()
			r, err := c.AcceptNextSessionForQueue(ctx, q, nil)
			if err != nil {
				got <- err.Error()
				return
			}
			got <- r.SessionID()
		}()
	}
	time.Sleep(quiet / 2)
	s := e.sender(e.client(0), q)
	e.send(s, inSession("A", "1"))
	first := <-got
	select {
	case other := <-got:
		e.Fatalf("both ended: %s, %s", first, other)
	case <-time.After(quiet):
	}
	e.send(s, inSession("B", "2"))
	e.check(first == "A" && <-got == "B", "the first got %s", first)
}

// S-164: the redelivery of a lost lock has the same id and number, and a higher count.
func redelivered(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: to("PT5S")})
	m := text("a")
	m.MessageID = to("job 7")
	e.send(e.sender(e.client(0), q), m)
	first := e.one(e.receiver(e.client(1), q, nil))
	r := e.receiver(e.client(2), q, nil)
	again := e.one(r)
	e.check(again.MessageID == "job 7" && *again.SequenceNumber == *first.SequenceNumber &&
		again.DeliveryCount == first.DeliveryCount+1, "%s number %d count %d came back as %s number %d count %d", first.MessageID,
		*first.SequenceNumber, first.DeliveryCount, again.MessageID, *again.SequenceNumber, again.DeliveryCount)
	e.complete(r, again)
	e.none(r)
}

// S-176: who may not receive from a queue may not receive from its dead letters either; peek works on.
func disabledDeadLetters(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), text("a"))
	r := e.receiver(e.client(1), q, nil)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), nil))
	set := func(s admin.EntityStatus) {
		_, err := e.admin(0).UpdateQueue(e.ctx, q, admin.QueueProperties{Status: &s}, nil)
		e.must("update", err)
	}
	set(admin.EntityStatusReceiveDisabled)
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	_, err := e.deadLetters(e.client(2), q).ReceiveMessages(ctx, 1, nil)
	e.check(err != nil && strings.Contains(err.Error(), "com.microsoft:entity-disabled"), "received from a disabled queue's dead letters: %v", err)
	set(admin.EntityStatusActive)
	e.check(string(e.one(e.deadLetters(e.client(2), q)).Body) == "a", "the dead letter is another one")
}

// S-250: a receiver peeks on behind the last number that it has seen, and from any number that is given.
func peeksOn(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), text("1"), text("2"), text("3"), text("4"))
	r := e.receiver(e.client(1), q, nil)
	peek := func(o *azservicebus.PeekMessagesOptions, want ...string) {
		ms, err := r.PeekMessages(e.ctx, 2, o)
		e.must("peek", err)
		e.check(slices.Equal(bodies(ms), want), "peeked %v, want %v", bodies(ms), want)
	}
	peek(nil, "1", "2")
	peek(nil, "3", "4")
	peek(nil)
	peek(&azservicebus.PeekMessagesOptions{FromSequenceNumber: to(int64(2))}, "2", "3")
}

// S-63, S-106: two receivers finish messages of a queue in any order; in a session the second one gets nothing
// before the first has gone.
func onlySessionsOrderWork(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), text("1"), text("2"))
	one, two := e.receiver(e.client(0), q, nil), e.receiver(e.client(1), q, nil)
	first, second := e.one(one), e.one(two)
	e.check(string(first.Body) == "1" && string(second.Body) == "2", "handed out %q, %q", first.Body, second.Body)
	e.complete(two, second)
	e.complete(one, first)

	q = e.sessionQueue("PT1M")
	e.send(e.sender(e.client(0), q), inSession("S", "1"), inSession("S", "2"))
	holder := e.accept(e.client(0), q, "S")
	m := e.one(holder)
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	_, err := e.client(1).AcceptSessionForQueue(ctx, q, "S", nil)
	e.check(err != nil && strings.Contains(err.Error(), "session-cannot-be-locked"), "a second receiver has the session: %v", err)
	e.complete(holder, m)
	e.must("close", holder.Close(e.ctx))
	next := e.accept(e.client(1), q, "S")
	e.check(string(e.one(next).Body) == "2", "the next receiver began elsewhere")
}
