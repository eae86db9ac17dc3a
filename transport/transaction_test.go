package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// deal is a client with a coordinator link, senders and a receiver.
type deal struct {
	t       *testing.T
	b       *bubble
	c       *rawClient
	next    uint32 // delivery id
	commits []*fsm.Commit
	keys    []fsm.Key
	outcome fsm.Outcome // of commits; the zero value is success
	// settled are the deliveries that commits have told to be settled, with their states.
	settled map[uint32]string
}

const coordinatorHandle = 20

// newDeal attaches a coordinator; commits are noted and answered with d.outcome.
func newDeal(t *testing.T, b *bubble) *deal {
	t.Helper()
	d := &deal{t: t, b: b, c: b.client(), next: 100}
	d.c.authenticate()
	b.broker.answer = func(k fsm.Key, c fsm.Command) (fsm.Outcome, bool) {
		commit, ok := c.(*fsm.Commit)
		if ok {
			d.commits, d.keys = append(d.commits, commit), append(d.keys, k)
		}
		return d.outcome, ok
	}
	reply := d.c.attach(0, &amqp.Attach{Name: "coordinator", Handle: coordinatorHandle, Role: amqp.RoleSender,
		Source: &amqp.Source{}, Coordinator: &amqp.Coordinator{}})
	if reply.Coordinator == nil || !reply.MaxMessageSize.Set {
		t.Fatalf("the coordinator's attach is %+v", reply)
	}
	expect[*amqp.Flow](d.c)
	return d
}

// sender attaches a sending link.
func (d *deal) sender(handle uint32, address string) {
	d.t.Helper()
	d.c.attach(0, senderTo(handle, address))
	expect[*amqp.Flow](d.c)
}

// transfer sends a delivery and returns its outcome.
func (d *deal) transfer(handle uint32, state amqp.DeliveryState, payload []byte) amqp.DeliveryState {
	d.t.Helper()
	d.next++
	tr := transferOf(handle, d.next)
	tr.State = state
	d.c.send(0, tr, payload)
	return d.disposed(d.next)
}

// disposed waits for the settled answer to a delivery. What a commit settles meanwhile is noted.
func (d *deal) disposed(id uint32) amqp.DeliveryState {
	d.t.Helper()
	for {
		p := d.disposition()
		if p.First == id && p.Last.Or(id) == id && p.Settled {
			return amqp.CloneState(p.State)
		}
		if _, ok := p.State.(*amqp.TransactionalState); !ok || p.Role != amqp.RoleSender || !p.Settled {
			d.t.Fatalf("got %s", describe(0, p))
		}
		for i := p.First; i != p.Last.Or(p.First)+1; i++ {
			if d.settled == nil {
				d.settled = map[uint32]string{}
			}
			d.settled[i] = stateText(p.State)
		}
	}
}

// disposition waits for the next one.
func (d *deal) disposition() *amqp.Disposition {
	d.t.Helper()
	for {
		p, _ := d.c.next()
		switch p := p.(type) {
		case *amqp.Flow:
			continue
		case *amqp.Disposition:
			return p
		}
		d.t.Fatalf("got %s", describe(0, p))
	}
}

func (d *deal) declare() []byte {
	d.t.Helper()
	state := d.transfer(coordinatorHandle, nil, amqp.AppendDeclare(nil, amqp.Declare{}))
	declared, ok := state.(amqp.Declared)
	if !ok || len(declared.TxnID) == 0 || len(declared.TxnID) > amqp.MaxTxnIDBytes {
		d.t.Fatalf("declare: %T %+v", state, state)
	}
	return declared.TxnID
}

func (d *deal) discharge(id []byte, fail bool) string {
	d.t.Helper()
	return stateText(d.transfer(coordinatorHandle, nil, amqp.AppendDischarge(nil, amqp.Discharge{TxnID: id, Fail: fail})))
}

// send sends a message in a transaction and tells the outcome.
func (d *deal) send(handle uint32, id, message []byte) string {
	d.t.Helper()
	return stateText(d.transfer(handle, &amqp.TransactionalState{TxnID: id}, message))
}

// stateText is an outcome in words; a transactional one stands in parentheses.
func stateText(s amqp.DeliveryState) string {
	switch s := s.(type) {
	case *amqp.TransactionalState:
		return "(" + stateText(s.Outcome) + ")"
	case amqp.Rejected:
		if s.Error != nil {
			return string(s.Error.Condition) + " " + s.Error.Description
		}
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "amqp.")
}

// take receives n messages on a new link and returns their transfers.
func (d *deal) take(handle uint32, address string, n uint32) []*amqp.Transfer {
	d.t.Helper()
	return d.takeBy(receiverOf(handle, address), n)
}

func (d *deal) takeBy(attach *amqp.Attach, n uint32) []*amqp.Transfer {
	d.t.Helper()
	d.c.attach(0, attach)
	d.c.send(0, credit(attach.Handle, 0, n, false))
	var all []*amqp.Transfer
	for range n {
		tr, _ := expect[*amqp.Transfer](d.c)
		copied := *tr
		all = append(all, &copied)
	}
	return all
}

// settle settles a delivery in a transaction and tells the outcome, which leaves the delivery unsettled
// unless nothing is left of it (RUL-30).
func (d *deal) settle(tr *amqp.Transfer, id []byte, outcome amqp.DeliveryState) string {
	d.t.Helper()
	d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value,
		State: &amqp.TransactionalState{TxnID: id, Outcome: outcome}})
	p := d.disposition()
	if p.First != tr.DeliveryID.Value {
		d.t.Fatalf("got %s", describe(0, p))
	}
	text := stateText(p.State)
	over := strings.Contains(text, "lock-lost") || strings.HasPrefix(text, "amqp:not-found")
	if p.Settled != over {
		d.t.Errorf("%s: settled is %v, want %v", text, p.Settled, over)
	}
	return text
}

// again settles a delivery outside of any transaction and tells the outcome.
func (d *deal) again(tr *amqp.Transfer, outcome amqp.DeliveryState) string {
	d.t.Helper()
	d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, State: outcome})
	return stateText(d.disposed(tr.DeliveryID.Value))
}

// ops tells what the last commit does, entities by name.
func (d *deal) ops() string {
	d.t.Helper()
	if len(d.commits) == 0 {
		return "no commit"
	}
	name := func(id fsm.EntityID) string { return d.b.broker.byID[id].Name }
	out := "via " + name(d.keys[len(d.keys)-1].Entity) + ":"
	for _, op := range d.commits[len(d.commits)-1].Ops {
		switch c := op.Command.(type) {
		case *fsm.Transfer:
			out += fmt.Sprintf(" %s->%s x%d", name(op.Entity), name(c.To), len(c.Messages))
		case *fsm.Enqueue:
			out += fmt.Sprintf(" %s x%d", name(op.Entity), len(c.Messages))
		case *fsm.Settle:
			out += fmt.Sprintf(" %s%s settle %d", name(op.Entity), op.Sub, c.Items[0].Verdict)
		default:
			out += fmt.Sprintf(" %s %T", name(op.Entity), c)
		}
	}
	return out
}

func (d *deal) fill(name string, n int) {
	d.t.Helper()
	s := &scene{t: d.t, b: d.b, number: map[string]fsm.SequenceNumber{}}
	for i := range n {
		s.enqueue(d.b.broker.entities[name], fsm.Main, fmt.Sprint("message ", i))
	}
}

// S-231, S-232, S-236, T-228: what a client does in a transaction is answered at once, is seen by
// nobody, and becomes one command when it is discharged.
func TestATransactionIsOneCommand(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for _, name := range []string{"a", "b"} {
			b.broker.queue(name)
		}
		b.broker.subscription("news", "all")
		d := newDeal(t, b)
		defer d.c.close()
		d.fill("a", 3)
		d.sender(2, "a")
		d.sender(3, "b")
		d.sender(4, "news")
		got := d.take(5, "a", 2)
		id := d.declare()
		for i, step := range []string{
			d.send(3, id, encoded("to b")), d.settle(got[0], id, amqp.Accepted{}), d.send(2, id, encoded("to a")),
			d.send(4, id, encoded("to news")), d.settle(got[1], id, amqp.Modified{UndeliverableHere: amqp.Some(true)}),
		} {
			if want := []string{"(Accepted)", "(Accepted)", "(Accepted)", "(Accepted)", "(Modified)"}[i]; step != want {
				t.Errorf("step %d: %s, want %s", i, step, want)
			}
		}
		if c := b.broker.counts(t, "b"); c.Active != 0 || len(d.commits) != 0 {
			t.Errorf("before the discharge b has %d messages", c.Active)
		}
		if got := d.discharge(id, false); got != "Accepted" {
			t.Errorf("discharge: %s", got)
		}
		want := fmt.Sprintf("via a: a->b x1 a settle %d a x1 a->news x1 a settle %d", fsm.Complete, fsm.Defer)
		if got := d.ops(); got != want || len(d.commits) != 1 || !bytes.Equal(d.commits[0].ID, id) {
			t.Errorf("%d commits, %s, want %s", len(d.commits), got, want)
		}
		if got := d.discharge(id, false); !strings.HasPrefix(got, "amqp:transaction:unknown-id") {
			t.Errorf("a second discharge: %s", got)
		}
		id = d.declare() // without settlements the first entity that is sent to is the one
		d.send(4, id, encoded("to news"))
		d.send(3, id, encoded("to b"))
		if d.discharge(id, false); d.ops() != "via news: news x1 news->b x1" {
			t.Error(d.ops())
		}
	})
}

// S-233, T-229: a rollback leaves everything as it was, and what was settled can be settled again.
func TestARollbackLeavesEverything(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		defer d.c.close()
		d.fill("a", 1)
		d.sender(2, "a")
		got := d.take(5, "a", 1)
		id := d.declare()
		d.send(2, id, encoded("x"))
		d.settle(got[0], id, amqp.Accepted{})
		if got := d.discharge(id, true); got != "Accepted" || len(d.commits) != 0 {
			t.Errorf("rollback: %s, %d commits", got, len(d.commits))
		}
		if c := b.broker.counts(t, "a"); c.Active != 1 || c.Locked != 1 {
			t.Errorf("%+v", c)
		}
		d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: got[0].DeliveryID.Value, State: amqp.Accepted{}})
		if state := d.disposed(got[0].DeliveryID.Value); state != (amqp.Accepted{}) {
			t.Errorf("settled again: %s", stateText(state))
		}
		if c := b.broker.counts(t, "a"); c.Active != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// S-241, T-238: a commit that is refused is told to the client with its cause.
func TestARefusedCommitIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		defer d.c.close()
		d.sender(2, "a")
		for want, outcome := range map[string]fsm.Outcome{
			"amqp:transaction:rollback TransactionAborted: nothing of the transaction was done. an operation (com.microsoft:message-lock-lost)": {
				Refusal: fsm.TransactionAborted, Detail: "an operation", Ops: []fsm.Outcome{{}, {Refusals: []fsm.Refusal{fsm.MessageLockLost}}}},
			"amqp:resource-limit-exceeded TransactionSizeExceeded": {Refusal: fsm.TransactionTooLarge},
		} {
			d.outcome = outcome
			id := d.declare()
			d.send(2, id, encoded("x"))
			if got := d.discharge(id, false); !strings.HasPrefix(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// S-238, T-235: a transaction ends two minutes after its first operation; who goes on hears it.
func TestATransactionTimesOut(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		defer d.c.close()
		d.sender(2, "a")
		id := d.declare()
		time.Sleep(txnTimeout + time.Minute) // nothing has been done in it
		if got := d.send(2, id, encoded("x")); got != "(Accepted)" {
			t.Errorf("first operation: %s", got)
		}
		time.Sleep(txnTimeout - time.Second)
		if got := d.send(2, id, encoded("x")); got != "(Accepted)" {
			t.Errorf("in time: %s", got)
		}
		time.Sleep(2 * time.Second)
		const want = "amqp:transaction:timeout TransactionAborted: it was not finished in 2m0s."
		if got := d.send(2, id, encoded("x")); !strings.HasPrefix(got, want) {
			t.Errorf("too late: %s", got)
		}
		if got := d.discharge(id, false); !strings.HasPrefix(got, want) || len(d.commits) != 0 {
			t.Errorf("commit: %s", got)
		}
	})
}

// S-240, T-237: what is not discharged ends with its coordinator link, and counts no byte any more.
func TestATransactionEndsWithItsCoordinator(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		defer d.c.close()
		d.sender(2, "a")
		id := d.declare()
		d.send(2, id, encoded("x"))
		d.c.send(0, &amqp.Detach{Handle: coordinatorHandle, Closed: true})
		expect[*amqp.Detach](d.c)
		if got := d.send(2, id, encoded("x")); !strings.HasPrefix(got, "amqp:transaction:unknown-id") {
			t.Errorf("got %s", got)
		}
		d.c.send(0, &amqp.Attach{Name: "again", Handle: coordinatorHandle, Role: amqp.RoleSender,
			Source: &amqp.Source{}, Coordinator: &amqp.Coordinator{}})
		expect[*amqp.Attach](d.c)
		expect[*amqp.Flow](d.c)
		if got := d.discharge(id, false); !strings.HasPrefix(got, "amqp:transaction:unknown-id") || len(d.commits) != 0 {
			t.Errorf("got %s", got)
		}
	})
}

// S-234, S-235, S-236, S-239, T-230, T-231, T-233, T-236: what a transaction cannot have is refused
// for itself; the rest stays open.
func TestWhatATransactionRefuses(t *testing.T) {
	keyed := func(key string) []byte { return encoded("x", func(p *amqp.Properties) { p.GroupID = []byte(key) }) }
	for name, c := range map[string]struct {
		do   func(d *deal, id []byte) string
		want string
		ops  string
	}{
		"a second key on a partitioned queue": {func(d *deal, id []byte) string {
			d.send(4, id, keyed("k"))
			d.send(4, id, keyed("k"))
			return d.send(4, id, keyed("other"))
		}, "amqp:not-allowed All operations of a transaction on a partitioned entity", "via parts: parts x1 parts x1"},
		"no key on a partitioned queue": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return d.send(4, id, encoded("x"))
		}, "amqp:not-allowed A transaction may send to a partitioned entity only", "via a: a x1"},
		"another key in a partitioned queue that is only sent to": {func(d *deal, id []byte) string {
			d.settle(d.take(8, "a", 1)[0], id, amqp.Accepted{})
			d.send(4, id, keyed("k"))
			return d.send(2, id, keyed("other"))
		}, "(Accepted)", "via a: a settle 1 a->parts x1 a x1"},
		"a second entity to receive from": {func(d *deal, id []byte) string {
			d.settle(d.take(8, "a", 1)[0], id, amqp.Accepted{})
			return d.settle(d.take(9, "b", 1)[0], id, amqp.Accepted{})
		}, "amqp:not-allowed A transaction receives from one entity only", "via a: a settle 1"},
		"the 101st message": {func(d *deal, id []byte) string {
			for range maxTxnMessages {
				d.send(2, id, encoded("x"))
			}
			return d.send(2, id, encoded("x"))
		}, "amqp:resource-limit-exceeded TransactionSizeExceeded: a transaction sends at most 100 messages.", ""},
		"more bytes than a message may have": {func(d *deal, id []byte) string {
			d.b.broker.update("a", func(e *fsm.Descriptor) { e.MaxMessageBytes = 1000 })
			d.sender(6, "a")
			for range 4 {
				d.send(6, id, encoded(strings.Repeat("x", 100))) // as id and as body
			}
			return d.send(6, id, encoded(strings.Repeat("x", 100)))
		}, "amqp:resource-limit-exceeded TransactionSizeExceeded: the messages of a transaction have", "via a: a x1 a x1 a x1 a x1"},
		"bytes that are no message": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return d.send(2, id, []byte("hello"))
		}, "com.microsoft:argument-error message:", "via a: a x1"},
		"a settlement without an outcome": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return d.settle(d.take(8, "a", 1)[0], id, nil)
		}, "amqp:invalid-field a transactional state without an outcome", "via a: a x1"},
		"an id of nobody": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return d.send(2, []byte("nobody"), encoded("x"))
		}, "amqp:transaction:unknown-id", "via a: a x1"},
		"a delivery of nobody": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return d.settle(&amqp.Transfer{DeliveryID: amqp.Some(uint32(999))}, id, amqp.Accepted{})
		}, "amqp:not-found", "via a: a x1"},
		"a distributed transaction": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return stateText(d.transfer(coordinatorHandle, nil, amqp.AppendDeclare(nil, amqp.Declare{GlobalID: amqp.AppendBinary(nil, []byte("g"))})))
		}, "amqp:not-implemented", "via a: a x1"},
		"a message to the coordinator": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			return stateText(d.transfer(coordinatorHandle, nil, encoded("x")))
		}, "amqp:decode-error", "via a: a x1"},
		"too many transactions": {func(d *deal, id []byte) string {
			d.send(2, id, encoded("x"))
			for range maxTxns - 1 {
				d.declare()
			}
			return stateText(d.transfer(coordinatorHandle, nil, amqp.AppendDeclare(nil, amqp.Declare{})))
		}, "amqp:resource-limit-exceeded The connection has too many open", "via a: a x1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("a")
				b.broker.queue("b")
				b.broker.queue("parts", partitioned)
				d := newDeal(t, b)
				defer d.c.close()
				d.fill("a", 1)
				d.fill("b", 1)
				d.sender(2, "a")
				d.sender(4, "parts")
				id := d.declare()
				got := c.do(d, id)
				if !strings.HasPrefix(got, c.want) || strings.HasPrefix(c.want, "amqp") && !strings.Contains(got, "TrackingId:") && !strings.HasPrefix(got, "amqp:not-found") {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if got := d.discharge(id, false); got != "Accepted" {
					t.Errorf("the rest: %s", got)
				}
				if got := d.ops(); c.ops != "" && got != c.ops {
					t.Errorf("committed: %s, want %s", got, c.ops)
				}
			})
		})
	}
}
