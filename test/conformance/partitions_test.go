package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// numbered is a message with what its receiver was told of its place.
type numbered struct {
	sent   int // the how manieth of all
	number int64
	at     int64 // enqueued, in milliseconds
}

// S-321, T-273: the messages of one partition have a total order of numbers and times, and are delivered in it;
// across partitions a message that was sent later may have the lower number.
func rawPartitionOrder(e *rawEnv) {
	const keys, rounds = 12, 6
	q := e.queue(&admin.QueueProperties{EnablePartitioning: to(true)})
	tx := e.sender(q)
	for i := range keys * rounds { // each is acknowledged before the next is sent
		e.deliver(tx, annotated("x-opt-partition-key", fmt.Sprint("k", i%keys), fmt.Sprint(i)))
	}
	rx := e.receiver(q, nil)
	var all []numbered
	inPartition := map[int64][]numbered{}
	for range keys * rounds {
		m := e.take(rx)
		var n numbered
		_, err := fmt.Sscan(m.Body, &n.sent)
		e.must("read "+m.Body, err)
		v, _ := m.Parts.Annotation("x-opt-sequence-number")
		n.number, _ = v.Int64()
		v, _ = m.Parts.Annotation("x-opt-enqueued-time")
		at, _ := v.Timestamp()
		n.at = int64(at)
		all = append(all, n)
		inPartition[n.number>>48] = append(inPartition[n.number>>48], n)
		e.settle(m, amqp.Accepted{})
	}
	e.check(len(inPartition) > 1, "all messages are in one partition")
	for p, list := range inPartition {
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			e.check(a.sent < b.sent && a.number < b.number && a.at <= b.at && a.at > 0,
				"partition %d delivers %+v before %+v", p, a, b)
		}
	}
	crossed := false
	for _, a := range all {
		for _, b := range all {
			crossed = crossed || a.sent < b.sent && a.number > b.number
		}
	}
	e.check(crossed, "numbers have an order across partitions: %v", all)
}

// sessionsSpread is how many sessions are looked at: enough to be in more than one partition.
const sessionsSpread = 6

// TestASessionStaysInItsPartition has one node after the other leave the cluster and come back while clients of
// the others hold sessions of a partitioned queue. S-315
func TestASessionStaysInItsPartition(t *testing.T) {
	three := startThree(t)
	e := newEnv(t, three, false, 0)
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true), EnablePartitioning: to(true), LockDuration: to("PT1M")})
	home := map[string]int64{}
	for round := range three.Nodes {
		leaves, stays := three.Nodes[round], round+1
		c := e.client(stays)
		tx := e.sender(c, q)
		held := map[string]*azservicebus.SessionReceiver{}
		for i := range sessionsSpread {
			id := fmt.Sprint("session ", i)
			e.toSession(tx, id, fmt.Sprint(round, " before"))
			held[id] = e.accept(c, q, id)
			state, err := held[id].GetSessionState(e.ctx, nil)
			e.must("get the state", err)
			want := ""
			if round > 0 {
				want = fmt.Sprint("state ", round-1, " of ", id)
			}
			e.check(string(state) == want, "the state of %s is %q, want %q", id, state, want)
		}
		leaves.Stop()
		for id, r := range held {
			e.toSession(tx, id, fmt.Sprint(round, " while a node is away"))
			e.must("renew without the node", r.RenewSessionLock(e.ctx, nil))
			e.must("set the state", r.SetSessionState(e.ctx, fmt.Appendf(nil, "state %d of %s", round, id), nil))
		}
		e.must("start the node", leaves.Start())
		ready, done := context.WithTimeout(e.ctx, time.Minute)
		e.must("wait for the node", leaves.WaitReady(ready))
		done()
		for id, r := range held {
			e.toSession(tx, id, fmt.Sprint(round, " after"))
			e.must("renew with the node", r.RenewSessionLock(e.ctx, nil))
			for _, want := range []string{" before", " while a node is away", " after"} {
				m := e.one(r)
				e.check(string(m.Body) == fmt.Sprint(round, want), "%s: received %q, want %d%s", id, m.Body, round, want)
				e.check(*m.SessionID == id, "%s: a message of %s", id, *m.SessionID)
				p := *m.SequenceNumber >> 48
				if _, known := home[id]; !known {
					home[id] = p
				}
				e.check(p == home[id], "%s: %q is in partition %d, the first message was in %d", id, m.Body, p, home[id])
				e.complete(r, m)
			}
			e.must("close", r.Close(e.ctx))
		}
	}
	used := map[int64]bool{}
	for _, p := range home {
		used[p] = true
	}
	e.check(len(used) > 1, "all sessions are in one partition: %v", home)
}

// toSession sends a text to a session.
func (e *env) toSession(s *azservicebus.Sender, session, text string) {
	e.Helper()
	e.must("send", s.SendMessage(e.ctx, &azservicebus.Message{Body: []byte(text), SessionID: &session}, nil))
}
