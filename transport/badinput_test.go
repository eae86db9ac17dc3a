package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// badRequest is one malformed or impossible management request.
type badRequest struct {
	name string
	node string
	op   string
	body func(*scene) any
	want string // status and condition
	text string // what the description says
}

const (
	badArgument = "400 com.microsoft:argument-error"
	notAllowed  = "400 amqp:not-allowed"
	lockLost    = "410 com.microsoft:message-lock-lost"
	sessionLost = "410 com.microsoft:session-lock-lost"
	exhausted   = "403 amqp:resource-limit-exceeded"
	disabled    = "400 com.microsoft:entity-disabled"
	notThere    = "404 com.microsoft:message-not-found"
)

func fields(pairs ...any) func(*scene) any {
	return func(*scene) any { return mapOf(pairs...) }
}

func mapOf(pairs ...any) amqp.Map {
	m := amqp.Map{}
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, amqp.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

func scheduled(messages ...any) func(*scene) any {
	return func(*scene) any { return mapOf("messages", amqp.List(messages)) }
}

func oneMessage(encoded any) amqp.Map { return mapOf("message-id", "m", "message", encoded) }

func lockRequests() []badRequest {
	none := func(*scene) any { return nil }
	tokens := func(names ...string) func(*scene) any {
		return func(s *scene) any {
			ids := []amqp.UUID{}
			for _, n := range names {
				ids = append(ids, s.token(n)) // one that is not locked is all zeros
			}
			return mapOf("lock-tokens", ids)
		}
	}
	return []badRequest{
		{"renew without a body", "orders", "renew-lock", none, badArgument, "lock-tokens are missing"},
		{"renew with a list for a body", "orders", "renew-lock", func(*scene) any { return amqp.List{"x"} }, badArgument, "lock-tokens are missing"},
		{"renew of null", "orders", "renew-lock", fields("lock-tokens", nil), badArgument, "lock-tokens are missing"},
		{"renew of no token", "orders", "renew-lock", tokens(), badArgument, "1 to 1000 uuids"},
		{"renew of a text", "orders", "renew-lock", fields("lock-tokens", "x"), badArgument, "1 to 1000 uuids"},
		{"renew of numbers", "orders", "renew-lock", fields("lock-tokens", []int64{1}), badArgument, "1 to 1000 uuids"},
		{"renew of 1,001 tokens", "orders", "renew-lock", fields("lock-tokens", make([]amqp.UUID, 1001)), badArgument, "1 to 1000 uuids"},
		{"renew of a token of nobody", "orders", "renew-lock", tokens("nobody"), lockLost, "The lock supplied is invalid"},
		{"renew of a good and a bad token", "orders", "renew-lock", tokens("locked", "nobody"), lockLost, "The lock supplied is invalid"},
		{"renew of a token of the main queue in the DLQ", "orders/$DeadLetterQueue", "renew-lock", tokens("locked"), lockLost, "The lock supplied is invalid"},
		{"renew of a token of another queue", "spread", "renew-lock", tokens("locked"), lockLost, "The lock supplied is invalid"},
		{"renew of a message of a session queue", "grouped", "renew-lock", tokens("locked"), notAllowed, "Renew the lock of the session"},
		{"renew of a session on a queue without", "orders", "renew-session-lock", fields("session-id", "s"), notAllowed, "does not require sessions"},
		{"renew of a session in a DLQ", "grouped/$DeadLetterQueue", "renew-session-lock", fields("session-id", "s"), notAllowed, "does not require sessions"},
		{"renew of no session", "grouped", "renew-session-lock", fields(), sessionLost, "The session lock has expired"},
		{"renew of a session of nobody", "grouped", "renew-session-lock", fields("session-id", "other"), sessionLost, "The session lock has expired"},
		{"renew of a session that is a number", "grouped", "renew-session-lock", fields("session-id", int32(5)), badArgument, "session-id must be a string"},

		{"disposition without a status", "orders", "update-disposition", tokens("locked"), badArgument, `disposition-status "" is not known`},
		{"disposition with an unknown status", "orders", "update-disposition", fields("disposition-status", "eaten"), badArgument, `"eaten" is not known`},
		{"disposition with a number for status", "orders", "update-disposition", fields("disposition-status", int32(1)), badArgument, "is not known"},
		{"disposition of no token", "orders", "update-disposition", fields("disposition-status", "completed"), badArgument, "lock-tokens are missing"},
		{"disposition of a token of nobody", "orders", "update-disposition", fields("disposition-status", "completed", "lock-tokens", []amqp.UUID{{1}}), lockLost, "The lock supplied is invalid"},
		{"disposition with properties that are a list", "orders", "update-disposition", func(s *scene) any {
			return mapOf("disposition-status", "abandoned", "lock-tokens", []amqp.UUID{s.token("locked")}, "properties-to-modify", amqp.List{"x"})
		}, badArgument, "properties-to-modify"},
		{"disposition with a property without a name", "orders", "update-disposition", func(s *scene) any {
			return mapOf("disposition-status", "abandoned", "lock-tokens", []amqp.UUID{s.token("locked")}, "properties-to-modify", amqp.Map{{Key: int32(1), Value: "x"}})
		}, badArgument, "properties-to-modify"},
		{"abandon with a delay in the past", "orders", "update-disposition", delayed("abandoned", int64(-1)), badArgument, "x-busbar-delay must be a number of milliseconds"},
		{"abandon with a delay of eight days", "orders", "update-disposition", delayed("abandoned", int64(8*24*3600*1000)), badArgument, "x-busbar-delay must be a number of milliseconds"},
		{"abandon with a delay that is a text", "orders", "update-disposition", delayed("abandoned", "soon"), badArgument, "x-busbar-delay must be a number of milliseconds"},
		{"defer with a delay", "orders", "update-disposition", delayed("defered", int64(1)), badArgument, "with an abandoned message only"},
		{"dead-letter with a delay", "orders", "update-disposition", delayed("suspended", int64(1)), badArgument, "with an abandoned message only"},
		{"dead-letter in a DLQ", "orders/$DeadLetterQueue", "update-disposition", func(s *scene) any { // RUL-4, S-172
			return mapOf("disposition-status", "suspended", "lock-tokens", []amqp.UUID{s.token("dead")})
		}, notAllowed, ""},
		{"disposition on a session queue without its session", "grouped", "update-disposition", fields("disposition-status", "completed", "lock-tokens", []amqp.UUID{{1}}), sessionLost, "The session lock has expired"},
		{"disposition on a session queue of a token of nobody", "grouped", "update-disposition", fields("disposition-status", "completed", "lock-tokens", []amqp.UUID{{1}}, "session-id", "s"), lockLost, "The lock supplied is invalid"},
	}
}

func delayed(status string, delay any) func(*scene) any {
	return func(s *scene) any {
		return mapOf("disposition-status", status, "lock-tokens", []amqp.UUID{s.token("locked")},
			"properties-to-modify", mapOf(propDelay, delay))
	}
}

func messageRequests() []badRequest {
	numbers := func(names ...string) func(*scene) any {
		return func(s *scene) any {
			list := []int64{}
			for _, n := range names {
				list = append(list, int64(s.number[n])) // one that does not exist is 0
			}
			return mapOf("sequence-numbers", list, "receiver-settle-mode", uint32(1))
		}
	}
	sessionID := func(p *amqp.Properties) { p.GroupID = []byte("s") }
	long := func(p *amqp.Properties) { p.GroupID = bytes.Repeat([]byte("s"), 129) }
	return []badRequest{
		{"peek of nothing", "orders", "peek-message", fields("message-count", int32(0)), badArgument, "the count positive"},
		{"peek of minus one", "orders", "peek-message", fields("message-count", int32(-1)), badArgument, "the count positive"},
		{"peek of a text", "orders", "peek-message", fields("message-count", "ten"), badArgument, "must be numbers"},
		{"peek from a text", "orders", "peek-message", fields("from-sequence-number", "one", "message-count", int32(1)), badArgument, "must be numbers"},
		{"peek from a list", "orders", "peek-message", fields("from-sequence-number", amqp.List{}, "message-count", int32(1)), badArgument, "must be numbers"},
		{"peek from above the largest number", "orders", "peek-message", fields("from-sequence-number", uint64(1<<63), "message-count", int32(1)), badArgument, "must be numbers"},
		{"peek by a filter that is a number", "orders", "peek-message", fields("message-count", int32(1), "sql-filter", int64(1)), badArgument, "sql-filter must be a string"},
		{"peek by a filter that is none", "orders", "peek-message", fields("message-count", int32(1), "sql-filter", "a = = 1"), badArgument, "syntax error at character 5"},
		{"peek in a session that is a number", "grouped", "peek-message", fields("message-count", int32(1), "session-id", int64(1)), badArgument, "session-id must be a string"},

		{"receive of no number", "orders", "receive-by-sequence-number", fields(), badArgument, "sequence-numbers are missing"},
		{"receive of an empty array", "orders", "receive-by-sequence-number", numbers(), badArgument, "1 to 1000 longs"},
		{"receive of texts", "orders", "receive-by-sequence-number", fields("sequence-numbers", []string{"1"}), badArgument, "1 to 1000 longs"},
		{"receive of 1,001 numbers", "orders", "receive-by-sequence-number", fields("sequence-numbers", make([]int64, 1001)), badArgument, "1 to 1000 longs"},
		{"receive of a negative number", "orders", "receive-by-sequence-number", fields("sequence-numbers", []int64{-1}), notThere, "does not exist"},
		{"receive of an active message", "orders", "receive-by-sequence-number", numbers("active"), notThere, "does not exist"},
		{"receive of a locked message", "orders", "receive-by-sequence-number", numbers("locked"), notThere, "does not exist"},
		{"receive of a scheduled message", "orders", "receive-by-sequence-number", numbers("scheduled"), notThere, "does not exist"},
		{"receive of a dead message from the main queue", "orders", "receive-by-sequence-number", numbers("dead"), notThere, "does not exist"},
		{"receive of a deferred and a missing one", "orders", "receive-by-sequence-number", numbers("deferred", "nobody"), notThere, "does not exist"},
		{"receive of numbers of a partition that is none", "spread", "receive-by-sequence-number", fields("sequence-numbers", []int64{77 << 48}), notThere, "does not exist"},
		{"receive in a mode that is none", "orders", "receive-by-sequence-number", fields("sequence-numbers", []int64{1}, "receiver-settle-mode", uint32(2)), badArgument, "receiver-settle-mode must be 0 or 1"},
		{"receive in a mode that is a text", "orders", "receive-by-sequence-number", fields("sequence-numbers", []int64{1}, "receiver-settle-mode", "peek"), badArgument, "receiver-settle-mode must be 0 or 1"},
		{"receive from a session queue without its session", "grouped", "receive-by-sequence-number", numbers("in session"), sessionLost, "The session lock has expired"}, // S-74

		{"schedule of nothing", "orders", "schedule-message", fields(), badArgument, "list of at least one map"},
		{"schedule of an empty list", "orders", "schedule-message", scheduled(), badArgument, "list of at least one map"},
		{"schedule of a map", "orders", "schedule-message", fields("messages", mapOf("message", []byte{})), badArgument, "list of at least one map"},
		{"schedule of numbers", "orders", "schedule-message", scheduled(int32(1)), badArgument, "a message is missing"},
		{"schedule of a map without a message", "orders", "schedule-message", scheduled(mapOf("message-id", "m")), badArgument, "a message is missing"},
		{"schedule of a message that is a text", "orders", "schedule-message", scheduled(oneMessage("hello")), badArgument, "a message is missing"},
		{"schedule of bytes that are no message", "orders", "schedule-message", scheduled(oneMessage([]byte("hello"))), badArgument, "message:"},
		{"schedule of a good and a bad message", "orders", "schedule-message", scheduled(oneMessage(encoded("good")), oneMessage([]byte{1})), badArgument, "message:"},
		{"schedule of a message above the limit", "orders", "schedule-message", scheduled(oneMessage(encoded(strings.Repeat("x", sceneBytes)))), "403 amqp:link:message-size-exceeded", "exceeds the limit"},
		{"schedule at a time that is a text", "orders", "schedule-message", scheduled(oneMessage(annotated(annScheduledTime, "noon"))), badArgument, "is no time"},
		{"schedule before the epoch", "orders", "schedule-message", scheduled(oneMessage(annotated(annScheduledTime, amqp.Timestamp(-5)))), badArgument, "is no time"},
		{"schedule of a session id of 129 characters", "orders", "schedule-message", scheduled(oneMessage(encoded("m", long))), badArgument, "at most 128 characters"},               // S-228
		{"schedule without a session where one is needed", "grouped", "schedule-message", scheduled(oneMessage(encoded("m"))), notAllowed, "The SessionId was not set on a message"}, // S-30
		{"schedule in a DLQ", "orders/$DeadLetterQueue", "schedule-message", scheduled(oneMessage(encoded("m"))), notAllowed, "cannot be scheduled here"},                            // S-171
		{"schedule of two keys in a partitioned queue", "spread", "schedule-message", scheduled(oneMessage(encoded("m", sessionID)), oneMessage(encoded("m"))), notAllowed, "must have the same session id or partition key"},

		{"cancel of nothing", "orders", "cancel-scheduled-message", fields(), badArgument, "sequence-numbers are missing"},
		{"cancel of an empty array", "orders", "cancel-scheduled-message", numbers(), badArgument, "1 to 1000 longs"},
		{"cancel of a text", "orders", "cancel-scheduled-message", fields("sequence-numbers", "1"), badArgument, "1 to 1000 longs"},
		{"cancel of an active message", "orders", "cancel-scheduled-message", numbers("active"), notThere, "does not exist"}, // S-116
		{"cancel of a good and a missing number", "orders", "cancel-scheduled-message", numbers("scheduled", "nobody"), notThere, "does not exist"},
		{"cancel in a partition that is none", "spread", "cancel-scheduled-message", fields("sequence-numbers", []int64{77 << 48}), notThere, "does not exist"},

		{"delete of zero", "orders", "batch-delete-messages", fields("message-count", int32(0)), badArgument, "from 1 to 4000"}, // S-263, T-220
		{"delete of minus one", "orders", "batch-delete-messages", fields("message-count", int32(-1)), badArgument, "from 1 to 4000"},
		{"delete of 4,001", "orders", "batch-delete-messages", fields("message-count", int32(4001)), badArgument, "from 1 to 4000"},
		{"delete without a count", "orders", "batch-delete-messages", fields(), badArgument, "from 1 to 4000"},
		{"delete of a text", "orders", "batch-delete-messages", fields("message-count", "all"), badArgument, "from 1 to 4000"},
		{"delete before a text", "orders", "batch-delete-messages", fields("message-count", int32(1), "enqueued-time-utc", "noon"), badArgument, "must be a timestamp"},
		{"delete before a number", "orders", "batch-delete-messages", fields("message-count", int32(1), "enqueued-time-utc", int64(5)), badArgument, "must be a timestamp"},
		{"delete in a session queue without its session", "grouped", "batch-delete-messages", fields("message-count", int32(1)), sessionLost, "The session lock has expired"}, // S-264, T-221
	}
}

// annotated is a message with one annotation.
func annotated(key string, value any) []byte {
	raw, err := amqp.AppendValue(nil, value)
	if err != nil {
		panic(err)
	}
	w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
	w.Raw(key, raw)
	return append(w.End(), encoded("m")...)
}

func sessionRequests() []badRequest {
	return []badRequest{
		{"state of a session on a queue without", "orders", "get-session-state", fields("session-id", "s"), notAllowed, "does not require sessions"},
		{"state of no session", "grouped", "get-session-state", fields(), sessionLost, "The session lock has expired"},
		{"state of a session of nobody", "grouped", "get-session-state", fields("session-id", "other"), sessionLost, "The session lock has expired"}, // S-68
		{"state of a session that was taken back", "taken back", "get-session-state", fields("session-id", "s"), disabled, "is currently disabled"},  // S-254
		{"set the state of a session that was taken back", "taken back", "set-session-state", fields("session-id", "s"), disabled, "is currently disabled"},
		{"renew of a session that was taken back", "taken back", "renew-session-lock", fields("session-id", "s"), sessionLost, "The session lock has expired"},
		{"state of a session in a DLQ", "grouped/$DeadLetterQueue", "get-session-state", fields("session-id", "s"), notAllowed, "does not require sessions"},
		{"set the state on a queue without sessions", "orders", "set-session-state", fields("session-id", "s"), notAllowed, "does not require sessions"},
		{"set the state of a session of nobody", "grouped", "set-session-state", fields("session-id", "other", "session-state", []byte("x")), sessionLost, "The session lock has expired"},
		{"set the state to a text", "grouped", "set-session-state", fields("session-id", "s", "session-state", "x"), badArgument, "must be binary or null"},
		{"set the state to a map", "grouped", "set-session-state", fields("session-id", "s", "session-state", amqp.Map{}), badArgument, "must be binary or null"},
		{"set a state above the limit", "grouped", "set-session-state", fields("session-id", "s", "session-state", make([]byte, sceneBytes+1)), "403 amqp:link:message-size-exceeded", "exceeds the limit"}, // S-226
		{"list the sessions of a queue without", "orders", "get-message-sessions", fields("skip", int32(0), "top", int32(1)), notAllowed, "does not require sessions"},
		{"list no session", "grouped", "get-message-sessions", fields("skip", int32(0), "top", int32(0)), badArgument, "top positive"},
		{"list sessions from minus one", "grouped", "get-message-sessions", fields("skip", int32(-1), "top", int32(1)), badArgument, "skip must be 0 to"},
		{"list sessions from a text", "grouped", "get-message-sessions", fields("skip", "a", "top", int32(1)), badArgument, "skip must be 0 to"},
		{"list sessions from the millionth", "grouped", "get-message-sessions", fields("skip", int32(1_000_000), "top", int32(1)), badArgument, "skip must be 0 to"},
		{"list sessions since a text", "grouped", "get-message-sessions", fields("top", int32(1), "last-updated-time", "noon"), badArgument, "last-updated-time must be a timestamp"},

		{"an operation of another service", "orders", "partition", fields(), "501 amqp:not-implemented", `"com.microsoft:partition" is not supported`},
		{"an operation in capitals", "orders", "PEEK-MESSAGE", fields("message-count", int32(1)), "501 amqp:not-implemented", "is not supported"},
		{"an operation of 4,000 characters", "orders", strings.Repeat("x", 4000), fields(), "501 amqp:not-implemented", `xxx..." is not supported`},
	}
}

// T-57, S-1, S-2: every operation refuses bad input with the documented condition, says why, names
// the refusal in the log, and changes nothing.
func TestBadRequestsChangeNothing(t *testing.T) {
	rows := append(append(lockRequests(), messageRequests()...), sessionRequests()...)
	if len(rows) < 80 {
		t.Errorf("%d rows", len(rows))
	}
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		before := s.picture()
		for _, row := range rows {
			s.asking = row.name
			code, condition, _, text := s.askFully(row.node, "com.microsoft:"+row.op, row.body(s))
			if got := fmt.Sprintf("%d %s", code, condition); got != row.want {
				t.Errorf("%s: got %s, want %s (%s)", row.name, got, row.want, text)
			}
			if !strings.Contains(text, row.text) || !strings.Contains(text, "TrackingId:") {
				t.Errorf("%s: %q does not say %q", row.name, text, row.text)
			}
			if after := s.picture(); after != before {
				t.Fatalf("%s changed something:\n%s\nbecame\n%s", row.name, before, after)
			}
		}
		if n := b.server.stats.Rejected[sitePanic].Load(); n != 0 {
			t.Errorf("%d panics", n)
		}
		s.c.close()
	})
}
