package scenario

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// got is a delivered or peeked message, with what the broker says of it.
type got struct {
	*goamqp.Message
	rx    *receiver
	token goamqp.UUID
}

func (g *got) text() string { return string(g.GetData()) }

// count is the DeliveryCount that applications see: 1 on the first delivery.
func (g *got) count() int {
	if g.Header == nil {
		return 1
	}
	return int(g.Header.DeliveryCount) + 1
}

func (g *got) seq() int64 { n, _ := g.Annotations["x-opt-sequence-number"].(int64); return n }
func (g *got) enqueuedSeq() int64 {
	n, forwarded := g.Annotations["x-opt-enqueue-sequence-number"].(int64)
	if !forwarded {
		return g.seq() // S-102, RUL-27
	}
	return n
}
func (g *got) enqueuedAt() time.Time {
	t, _ := g.Annotations["x-opt-enqueued-time"].(time.Time)
	return t
}
func (g *got) lockedUntil() time.Time {
	t, _ := g.Annotations["x-opt-locked-until"].(time.Time)
	return t
}

// expiresAt is what the SDKs make of the enqueued time and the time to live; zero is never.
func (g *got) expiresAt() time.Time {
	if g.Header == nil || g.Header.TTL == 0 {
		return time.Time{}
	}
	return g.enqueuedAt().Add(g.Header.TTL)
}

// state is 0 for Active, 1 for Deferred, 2 for Scheduled.
func (g *got) state() int {
	s, _ := g.Annotations["x-opt-message-state"].(int32)
	return int(s)
}
func (g *got) session() string {
	if g.Properties == nil || g.Properties.GroupID == nil {
		return ""
	}
	return *g.Properties.GroupID
}
func (g *got) property(key string) any { return g.ApplicationProperties[key] }
func (g *got) reason() string          { s, _ := g.property("DeadLetterReason").(string); return s }

func texts(list []*got) []string {
	out := make([]string, len(list))
	for i, g := range list {
		out[i] = g.text()
	}
	return out
}

func seqs(list []*got) []int64 {
	out := make([]int64, len(list))
	for i, g := range list {
		out[i] = g.seq()
	}
	return out
}

// receiver is an open receiving link; credit is granted message by message, as the SDKs do.
type receiver struct {
	*goamqp.Receiver
	c    *client
	open int // credit that was granted and not used
}

func options() *goamqp.ReceiverOptions {
	return &goamqp.ReceiverOptions{Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr()}
}

// deleting makes a link that receives and deletes.
func deleting(o *goamqp.ReceiverOptions) {
	o.SettlementMode = nil
	o.RequestedSenderSettleMode = goamqp.SenderSettleModeSettled.Ptr()
}

func (c *client) receiver(entity string, change ...func(*goamqp.ReceiverOptions)) *receiver {
	c.b.Helper()
	r, err := c.tryReceiver(entity, change...)
	c.b.must("open a receiver on "+entity, err)
	return r
}

func (c *client) tryReceiver(entity string, change ...func(*goamqp.ReceiverOptions)) (*receiver, error) {
	ctx, cancel := c.b.soon()
	defer cancel()
	o := options()
	for _, f := range change {
		f(o)
	}
	rx, err := c.session.NewReceiver(ctx, entity, o)
	return &receiver{Receiver: rx, c: c}, err
}

// deadLetters is the address of an entity's dead-letter queue.
func deadLetters(entity string) string { return entity + "/$DeadLetterQueue" }

// try asks for one message and waits for it, on and on until wait is over: nil without an error says
// that none came. What was asked for stays asked for.
func (r *receiver) try(wait time.Duration) (*got, error) {
	if r.open == 0 {
		if err := r.IssueCredit(1); err != nil {
			return nil, err
		}
		r.open++
	}
	ctx, cancel := context.WithTimeout(r.c.b.ctx, wait)
	defer cancel()
	m, err := r.Receive(ctx, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil
	case err != nil:
		return nil, err
	}
	r.open--
	return &got{Message: m, rx: r, token: tokenOf(m.DeliveryTag)}, nil
}

// tokenOf is the lock token in a delivery tag, whose first groups are little endian.
func tokenOf(tag []byte) (u goamqp.UUID) {
	if len(tag) != len(u) {
		return u
	}
	binary.BigEndian.PutUint32(u[0:], binary.LittleEndian.Uint32(tag[0:]))
	binary.BigEndian.PutUint16(u[4:], binary.LittleEndian.Uint16(tag[4:]))
	binary.BigEndian.PutUint16(u[6:], binary.LittleEndian.Uint16(tag[6:]))
	copy(u[8:], tag[8:])
	return u
}

// one receives a message that has to come.
func (r *receiver) one() *got {
	r.c.b.Helper()
	g, err := r.try(patience)
	r.c.b.must("receive", err)
	if g == nil {
		r.c.b.Fatalf("no message within %s", patience)
	}
	return g
}

// take receives n messages.
func (r *receiver) take(n int) []*got {
	r.c.b.Helper()
	var list []*got
	for range n {
		list = append(list, r.one())
	}
	return list
}

// none checks that no message comes for a while; no credit stays behind.
func (r *receiver) none(wait time.Duration) {
	r.c.b.Helper()
	g, err := r.try(wait)
	r.c.b.must("receive", err)
	if g != nil {
		r.c.b.Fatalf("received %q after %s, want nothing", g.text(), time.Since(r.c.b.began))
	}
	r.drain()
}

// drain takes back what was asked for and not given.
func (r *receiver) drain() {
	r.c.b.Helper()
	if r.open == 0 {
		return
	}
	ctx, cancel := r.c.b.soon()
	defer cancel()
	r.c.b.must("drain", r.DrainCredit(ctx, nil))
	r.open = 0
	if m := r.Prefetched(); m != nil {
		r.c.b.Fatalf("%q came with the drain", m.GetData())
	}
}

// close detaches the link; the connection lives on.
func (r *receiver) close() {
	r.c.b.Helper()
	ctx, cancel := r.c.b.soon()
	defer cancel()
	r.c.b.must("close the receiver", r.Close(ctx))
}

// accept opens a receiver on a session; id nil asks for any, for as long as wait.
func (c *client) accept(entity string, id any, wait time.Duration) *receiver {
	c.b.Helper()
	r, err := c.tryAccept(entity, id, wait)
	c.b.must("accept a session", err)
	return r
}

const sessionFilter = "com.microsoft:session-filter"

func (c *client) tryAccept(entity string, id any, wait time.Duration) (*receiver, error) {
	return c.tryAcceptWith(entity, id, wait)
}

func (c *client) tryAcceptWith(entity string, id any, wait time.Duration,
	change ...func(*goamqp.ReceiverOptions)) (*receiver, error) {
	return c.tryReceiver(entity, append(change, func(o *goamqp.ReceiverOptions) {
		o.Filters = []goamqp.LinkFilter{goamqp.NewLinkFilter(sessionFilter, 0x000000137000000C, id)}
		o.Properties = map[string]any{"com.microsoft:timeout": uint32(wait.Milliseconds())}
	})...)
}

// held is the id of the session that the link holds.
func (r *receiver) held() string {
	id, _ := r.LinkSourceFilterValue(sessionFilter).(string)
	return id
}

// lockedUntil is the end of the session's lock as told on attach.
func (r *receiver) lockedUntil() time.Time {
	ticks, _ := r.Properties()["com.microsoft:locked-until-utc"].(int64)
	return time.UnixMilli((ticks - 621355968000000000) / 10_000)
}
