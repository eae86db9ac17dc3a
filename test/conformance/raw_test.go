package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// rawEnv is the world of a case that speaks frames: an environment and a connection over the case's wire.
type rawEnv struct {
	*env
	wire raw.Wire
	c    *raw.Client
}

// rawCases are frames as .NET writes them, where no library on the project's machines says them. Each is an entry of
// docs/bugs.md or a habit of section 8.10 of docs/spec/semantics.md.
var rawCases = []struct {
	name string
	run  func(*rawEnv)
}{
	{"a delivery can be settled again after a roll-back", rawRollBack},
	{"a commit settles its deliveries before it is answered", rawCommit},
	{"a lost lock is told within the transaction", rawLostInTransaction},
	{"a late disposition is answered", rawLate},
	{"two keys in one transaction are refused", rawTwoKeys},
	{"a burst of requests within the credit is answered", rawBurst},
	{"a segment is one of Ethernet", rawSegments},
	{"a batch has as many messages as its bytes hold", rawBatch},
	{"a link tells how large a batch may be", rawBatchLimit},
	{"a token that is gone does not lose the session", rawTokenGone},
	{"a session id beside another partition key is kept", rawSessionAndKey},
	{"a reason that is not text is kept", rawReason},
	{"a decimal of .NET is a number", rawDecimal},
	{"values of a rule keep their types", rawRuleTypes},
	{"a duration keeps its 100 ns, and infinity is INF", rawDurations},
	{"a name that is taken is counted as that", rawTakenName},
	{"an attach that is refused again and again is refused all the same", rawRefusedAgain},
	{"an accept-next without a time ends before the client gives up", rawAcceptNext},
	{"drain is answered, also without credit", rawDrain},
	{"a receiver's habits", rawReceiver},
	{"a session receiver's habits", rawSessionReceiver},
	{"a request's answer has the types that are cast", rawAnswerTypes},
	{"sessions are listed by their messages or by their state", rawSessionList},
	{"a failed link does not end its session", rawFailedLink},
	{"administration speaks 2024-05", rawNewVersion},
	{"order holds within a partition and not across", rawPartitionOrder},
	{"a session without exclusion is accepted by id and as the next one", rawSharedAccept},
	{"a session is taken over by its token, and what was delivered with it", rawTakeOver},
	{"a session token ends with the lock of its session", rawSharedExpiry},
	{"listings show how a session is held, and no token", rawSharedListing},
	{"whoever may not listen takes no session over", rawTakeOverRights},
	{"a request above the limit ends its link alone", rawLargeRequest},
	{"a token is renewed over the open links of $cbs", rawRenewedToken},
}

func TestRawFrames(t *testing.T) {
	for _, count := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), startLimit)
			defer cancel()
			c, err := cluster.Start(ctx, t.TempDir(), count)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { end(t, c) })
			for _, wire := range []raw.Wire{raw.Plain, raw.TLS, raw.WebSocket} {
				t.Run(string(wire), func(t *testing.T) {
					if !*oneCaseAtATime {
						t.Parallel()
					}
					for i, tc := range rawCases {
						t.Run(tc.name, func(t *testing.T) {
							if !*oneCaseAtATime {
								t.Parallel()
							}
							e := &rawEnv{env: newEnv(t, c, wire != raw.Plain, i), wire: wire}
							e.c = e.connect(0)
							tc.run(e)
						})
					}
				})
			}
		})
	}
}

// connect opens a connection of its own to node i.
func (e *rawEnv) connect(i int) *raw.Client {
	e.Helper()
	c, err := raw.Dial(e.ctx, e.node(i), e.wire)
	e.must("connect", err)
	e.Cleanup(c.Close)
	return c
}

func (e *rawEnv) sender(entity string) uint32 {
	e.Helper()
	a, err := e.c.Sender(entity)
	e.must("attach a sender", err)
	return a.Handle
}

func (e *rawEnv) receiver(entity string, session any) uint32 {
	e.Helper()
	a, err := e.c.Receiver(entity, session)
	e.must("attach a receiver", err)
	return a.Handle
}

func (e *rawEnv) asker(entity string) *raw.Asker {
	e.Helper()
	a, err := e.c.Asker(entity)
	e.must("attach to $management", err)
	return a
}

func (e *rawEnv) coordinator() uint32 {
	e.Helper()
	a, err := e.c.Coordinator()
	e.must("attach to the coordinator", err)
	return a.Handle
}

func (e *rawEnv) declare(coordinator uint32) []byte {
	e.Helper()
	id, err := e.c.Declare(coordinator)
	e.must("declare", err)
	return id
}

// deliver sends a message, which must be accepted.
func (e *rawEnv) deliver(handle uint32, payload []byte) {
	e.Helper()
	_, err := e.c.Deliver(handle, nil, payload)
	e.must("send", err)
}

func (e *rawEnv) take(handle uint32) *raw.Message {
	e.Helper()
	m, err := e.c.Receive(handle)
	e.must("receive", err)
	return m
}

// settle decides about a message, whose answer must be a settled one.
func (e *rawEnv) settle(m *raw.Message, state amqp.DeliveryState) {
	e.Helper()
	d, err := e.c.Settle(m.ID, state)
	e.must("settle", err)
	e.check(d.Settled, "a disposition outside of a transaction is answered unsettled")
}

// refused checks the condition of an error.
func (e *rawEnv) refused(what string, err error, condition string) {
	e.Helper()
	e.check(raw.Condition(err) == condition, "%s: %v, want %s", what, err, condition)
}

// ask sends a request and checks the code of its answer.
func (e *rawEnv) ask(a *raw.Asker, code int64, operation string, body amqp.Map) *raw.Answer {
	e.Helper()
	got, err := a.Ask(operation, nil, body)
	e.must(operation, err)
	e.check(got.Code == code, "%s: %d %s %s, want %d", operation, got.Code, got.Condition, got.Text, code)
	return got
}

// message is an encoded message with a text for its body.
func encode(text string, edit ...func(*amqp.Properties)) []byte {
	p := &amqp.Properties{MessageID: amqp.AppendString(nil, text)}
	for _, f := range edit {
		f(p)
	}
	return append(amqp.AppendProperties(nil, p), amqp.AppendData(nil, []byte(text))...)
}

func group(id string) func(*amqp.Properties) {
	return func(p *amqp.Properties) { p.GroupID = []byte(id) }
}

func fields(pairs ...any) (m amqp.Map) {
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, amqp.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}
