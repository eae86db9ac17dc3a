package attack

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	badArgument     = "com.microsoft:argument-error"
	messageNotFound = "com.microsoft:message-not-found"
	messageLockLost = "com.microsoft:message-lock-lost"
	sessionLockLost = "com.microsoft:session-lock-lost"
)

// verdict is the code of an answer and its condition.
type verdict struct {
	code      int64
	condition string
}

var (
	bad  = verdict{400, badArgument}
	none = verdict{204, ""}
	lost = verdict{410, messageLockLost}
	gone = verdict{404, messageNotFound}
)

// values are extremes of every type that a number may come as. whole is the number, nil if it is none of 64 bits.
var values = func() (all []struct {
	v     any
	whole *int64
}) {
	add := func(v any, whole ...int64) {
		one := struct {
			v     any
			whole *int64
		}{v: v}
		if len(whole) > 0 {
			one.whole = &whole[0]
		}
		all = append(all, one)
	}
	for _, n := range []int64{math.MinInt64, math.MinInt64 + 1, -1 << 32, math.MinInt32, -1, 0, 1, 2, 4000, 4001, 100_000, 100_001,
		math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, 1 << 48, math.MaxInt64 - 1, math.MaxInt64} {
		add(n, n)
	}
	add(int32(math.MinInt32), math.MinInt32)
	add(int32(math.MaxInt32), math.MaxInt32)
	add(int16(-1), -1)
	add(int8(-128), -128)
	add(uint8(255), 255)
	add(uint16(65535), 65535)
	add(uint32(math.MaxUint32), math.MaxUint32)
	add(uint64(math.MaxInt64), math.MaxInt64)
	for _, v := range []any{uint64(math.MaxUint64), uint64(math.MaxInt64) + 1, math.NaN(), math.Inf(1), math.Inf(-1), 1.0, float32(1),
		"1", "", amqp.Symbol("1"), true, []byte{0, 0, 0, 1}, amqp.Timestamp(1), amqp.UUID{}, amqp.List{int64(1)}, []int64{1},
		amqp.Map{{Key: "1", Value: int64(1)}}, amqp.Char('1')} {
		add(v)
	}
	return all
}()

// field is one number of one operation: what is answered if it is from low to high.
type field struct {
	operation, name string
	low, high       int64
	rest            amqp.Map
	good            []verdict
	each            bool // the number is an item of a list
}

func fields() []field {
	far, some := int64(1<<40), amqp.Map{{Key: "message-count", Value: int32(1)}}
	numbers := amqp.Map{{Key: "sequence-numbers", Value: []int64{far}}}
	return []field{
		{"peek-message", "from-sequence-number", math.MinInt64, math.MaxInt64, some, []verdict{none}, false},
		{"peek-message", "message-count", 1, math.MaxInt64, nil, []verdict{none}, false},
		{"batch-delete-messages", "message-count", 1, 4000, nil, []verdict{none}, false},
		{"receive-by-sequence-number", "receiver-settle-mode", 0, 1, numbers, []verdict{gone}, false},
		{"receive-by-sequence-number", "sequence-numbers", math.MinInt64, math.MaxInt64, nil, []verdict{gone}, true},
		{"cancel-scheduled-message", "sequence-numbers", math.MinInt64, math.MaxInt64, nil, []verdict{gone}, true},
	}
}

// Every number of every operation of the management nodes at its extremes and of every type: the answer is exact, and
// the connection, its links and the others stay.
func TestExtremesOfEveryNumber(t *testing.T) {
	onClusters(t, func(a *attack) string {
		a.entities()
		var requests atomic.Int64
		nodes := a.c.Nodes[:size(1, len(a.c.Nodes))]
		targets := a.targets()
		a.each(len(nodes)*len(targets), func(i int) error {
			target := targets[i%len(targets)]
			c, err := raw.Dial(a.ctx, nodes[i/len(targets)], raw.Plain)
			a.must("connect", err)
			defer c.Close()
			a.sockets.Add(1)
			requests.Add(int64(a.extremes(c, target.entity, target.fields)))
			if i%len(targets) == 0 {
				requests.Add(int64(a.shapes(c)))
			}
			s, err := c.Sender(a.queue + "-topic")
			a.must("the connection of the attacker works", err)
			_, err = c.Deliver(s.Handle, nil, amqp.AppendData(nil, []byte("after all")))
			return err
		})
		return fmt.Sprintf("%d requests", requests.Load())
	})
}

// target is an entity and the fields of its operations.
type target struct {
	entity string
	fields []field
}

func (a *attack) targets() []target {
	return []target{
		{a.queue, fields()},
		{a.queue + "-sessions", []field{
			{"get-message-sessions", "skip", 0, 100_000, nil, []verdict{none}, false},
			{"get-message-sessions", "top", 1, math.MaxInt64, nil, []verdict{none}, false},
		}},
		{a.queue + "-topic/Subscriptions/s", []field{
			{"enumerate-rules", "skip", 0, math.MaxInt64, nil, []verdict{{200, ""}, {204, "com.microsoft:rules-not-found"}}, false},
			{"enumerate-rules", "top", 1, math.MaxInt64, nil, []verdict{{200, ""}}, false},
		}},
	}
}

// entities creates a queue with sessions and a topic with a subscription beside the attack's queue.
func (a *attack) entities() {
	a.Helper()
	m, err := a.c.Nodes[0].Admin(false)
	a.must("admin client", err)
	yes := true
	_, err = m.CreateQueue(a.ctx, a.queue+"-sessions", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{RequiresSession: &yes}})
	a.must("create a queue with sessions", err)
	_, err = m.CreateTopic(a.ctx, a.queue+"-topic", nil)
	a.must("create a topic", err)
	_, err = m.CreateSubscription(a.ctx, a.queue+"-topic", "s", nil)
	a.must("create a subscription", err)
}

// extremes sends each value in each field and judges the answers.
func (a *attack) extremes(c *raw.Client, entity string, all []field) (requests int) {
	a.Helper()
	asker, err := c.Asker(entity)
	a.must("management of "+entity, err)
	for _, f := range all {
		for _, one := range values {
			v := one.v
			if f.each {
				v = amqp.List{one.v}
			}
			body := append(amqp.Map{{Key: f.name, Value: v}}, f.rest...)
			want := []verdict{bad}
			if one.whole != nil && *one.whole >= f.low && *one.whole <= f.high {
				want = f.good
			}
			a.answered(asker, f.operation, body, want...)
			requests++
		}
	}
	return requests
}

// answered sends a request and demands one of the verdicts.
func (a *attack) answered(asker *raw.Asker, operation string, body any, want ...verdict) {
	a.Helper()
	got, err := asker.Ask(operation, nil, body)
	if err != nil {
		a.Fatalf("%s %v: %v", operation, body, err)
	}
	for _, w := range want {
		if got.Code == w.code && got.Condition == w.condition {
			return
		}
	}
	a.Errorf("%s %.200s: %d %q %q, want %v", operation, fmt.Sprint(body), got.Code, got.Condition, got.Text, want)
}

// shapes sends bodies of the wrong shape: missing, empty, too many, too large, and of other types.
func (a *attack) shapes(c *raw.Client) (requests int) {
	a.Helper()
	queue, err := c.Asker(a.queue)
	a.must("management", err)
	sessions, err := c.Asker(a.queue + "-sessions")
	a.must("management", err)
	rules, err := c.Asker(a.queue + "-topic/Subscriptions/s")
	a.must("management", err)
	one := func(key string, v any) amqp.Map { return amqp.Map{{Key: key, Value: v}} }
	with := func(m amqp.Map, more ...amqp.Map) amqp.Map {
		for _, next := range more {
			m = append(m, next...)
		}
		return m
	}
	unknown := one("lock-tokens", []amqp.UUID{{1, 2, 3}})
	forgotten := verdict{410, sessionLockLost}
	for _, tc := range []struct {
		to        *raw.Asker
		operation string
		body      any
		want      verdict
	}{
		{queue, "renew-lock", amqp.Map{}, bad}, {queue, "renew-lock", one("lock-tokens", []amqp.UUID{}), bad},
		{queue, "renew-lock", one("lock-tokens", make([]amqp.UUID, 1001)), bad}, {queue, "renew-lock", one("lock-tokens", "x"), bad},
		{queue, "renew-lock", one("lock-tokens", []int64{1}), bad}, {queue, "renew-lock", unknown, lost},
		{queue, "receive-by-sequence-number", amqp.Map{}, bad},
		{queue, "receive-by-sequence-number", one("sequence-numbers", []int64{}), bad},
		{queue, "receive-by-sequence-number", one("sequence-numbers", make([]int64, 1001)), bad},
		{queue, "cancel-scheduled-message", one("sequence-numbers", make([]int64, 1001)), bad},
		{queue, "cancel-scheduled-message", one("sequence-numbers", []string{"1"}), bad},
		{queue, "update-disposition", with(one("disposition-status", "completed"), unknown), lost},
		{queue, "update-disposition", with(one("disposition-status", "exploded"), unknown), bad},
		{queue, "update-disposition", with(one("disposition-status", int64(1)), unknown), bad},
		{queue, "update-disposition", with(one("disposition-status", "abandoned"), unknown, one("properties-to-modify", "x")), bad},
		{queue, "update-disposition", one("disposition-status", "completed"), bad},
		{queue, "schedule-message", amqp.Map{}, bad}, {queue, "schedule-message", one("messages", amqp.List{}), bad},
		{queue, "schedule-message", one("messages", amqp.List{int64(1)}), bad},
		{queue, "schedule-message", one("messages", amqp.List{amqp.Map{{Key: "message", Value: int64(1)}}}), bad},
		{queue, "batch-delete-messages", with(one("message-count", int32(1)), one("enqueued-time-utc", int64(1))), bad},
		{queue, "batch-delete-messages", with(one("message-count", int32(1)), one("enqueued-time-utc", amqp.Timestamp(math.MinInt64))), none},
		{queue, "batch-delete-messages", with(one("message-count", int32(1)), one("enqueued-time-utc", amqp.Timestamp(math.MaxInt64))), none},
		{queue, "get-message-sessions", amqp.Map{}, verdict{400, "amqp:not-allowed"}},
		{sessions, "get-message-sessions", one("last-updated-time", int64(1)), bad},
		{sessions, "get-message-sessions", one("last-updated-time", amqp.Timestamp(math.MinInt64)), none},
		{sessions, "get-message-sessions", one("last-updated-time", amqp.Timestamp(math.MaxInt64)), none},
		{sessions, "renew-session-lock", amqp.Map{}, forgotten}, {sessions, "renew-session-lock", one("session-id", int64(1)), bad},
		{sessions, "get-session-state", one("session-id", "nobody's"), forgotten},
		{sessions, "set-session-state", with(one("session-id", strings.Repeat("s", 5000)), one("session-state", []byte("x"))), forgotten},
		{rules, "add-rule", amqp.Map{}, bad}, {rules, "add-rule", one("rule-name", ""), bad}, {rules, "add-rule", one("rule-name", int64(1)), bad},
		{rules, "add-rule", one("rule-name", "r"), bad}, {rules, "add-rule", with(one("rule-name", "r"), one("rule-description", int64(1))), bad},
		{rules, "remove-rule", one("rule-name", "nobody's"), verdict{404, "amqp:not-found"}},
		{rules, "no-such-operation", amqp.Map{}, verdict{501, "amqp:not-implemented"}},
		{queue, "peek-message", nil, none}, {queue, "peek-message", int64(1), none}, {queue, "renew-lock", "text", bad},
	} {
		a.answered(tc.to, tc.operation, tc.body, tc.want)
		requests++
	}
	return requests
}

// oddNames are ids and names of bytes that somebody might forget.
var oddNames = []string{"a\x00b", "\x00", "\xff\xfe", "a\xc0\x80", "\xed\xa0\x80", "/", "//", "..", "../..", "a/../b", "$", "$x", "$management", "a$b",
	"%00", "%2e%2e", "a b", " ", "a\r\nb", "a\tb", "\u202e", "\ufeff", "é", "\U0010ffff", "a#b", "a?b", "a|b", "a'b", `a"b`, "<a>", "&amp;", "${jndi:x}", "\\"}

// Names of entities and ids of sessions with odd bytes. A name is refused, a session id of at most 128 characters is kept to
// the byte. What is no UTF-8 is refused, and ends the connection where it stands in a frame and not in a message.
func TestOddNamesAndSessionIDs(t *testing.T) {
	onClusters(t, func(a *attack) string {
		a.entities()
		c, err := raw.Dial(a.ctx, a.c.Nodes[0], raw.Plain)
		a.must("connect", err)
		defer c.Close()
		names := append([]string{strings.Repeat("n", 261), strings.Repeat("n", 1000), strings.Repeat("a/", 400)}, oddNames...)
		a.addresses(names)
		ids := append([]string{strings.Repeat("s", 128), strings.Repeat("é", 128), strings.Repeat("s", 129), strings.Repeat("s", 1000)}, oddNames...)
		for i := range size(1, 20) {
			a.sessionIDs(fmt.Sprint("round ", i), ids)
		}
		return fmt.Sprintf("%d names, %d session ids", len(names), len(ids))
	})
}
