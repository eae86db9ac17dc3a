package conformance

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
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

// keysSoon bounds the time until a node has heard of a change that was made through another one.
const keysSoon = 10 * time.Second

// entityKeys: keys that the admin client sets on a queue through one node open that queue through every
// node, for what their rule allows and nothing else, and stop to when they are changed.
func entityKeys(e *env) {
	primary, secondary, next := randomKey(e), randomKey(e), randomKey(e)
	rule := func(key string) []admin.AuthorizationRule {
		return []admin.AuthorizationRule{{KeyName: to("app"), PrimaryKey: &key, SecondaryKey: &secondary,
			AccessRights: []admin.AccessRight{admin.AccessRightSend}}}
	}
	q := e.queue(&admin.QueueProperties{AuthorizationRules: rule(primary)})
	other := e.queue(nil)
	for i := range e.cluster.Nodes {
		e.check(e.opens(i, primary, q, true), "node %d: the primary key does not open its queue", i)
		e.check(e.opens(i, secondary, q, true), "node %d: the secondary key does not open its queue", i)
		e.check(!e.sends(i, primary, other), "node %d: the key opens another queue", i)
		c := e.keyClient(i, primary)
		_, err := e.receiver(c, q, nil).ReceiveMessages(e.ctx, 1, nil)
		e.wantCode("receive with the right to send", err, azservicebus.CodeUnauthorizedAccess)
	}
	_, err := e.admin(0).UpdateQueue(e.ctx, q, admin.QueueProperties{AuthorizationRules: rule(next)}, nil)
	e.must("rotate", err)
	for i := range e.cluster.Nodes {
		e.check(e.opens(i, next, q, true), "node %d: the new key does not open its queue", i)
		e.check(e.opens(i, primary, q, false), "node %d: the old key still opens the queue", i)
		e.check(e.sends(i, secondary, q), "node %d: the secondary key was lost", i)
	}
}

func randomKey(e *env) string {
	var b [32]byte
	_, err := rand.Read(b[:])
	e.must("chance", err)
	return base64.StdEncoding.EncodeToString(b[:])
}

// keyClient is a client of node i with a key of the policy app.
func (e *env) keyClient(i int, key string) *azservicebus.Client {
	n := e.node(i)
	cs := strings.Replace(n.ConnectionString(e.secure), "SharedAccessKeyName="+cluster.KeyName, "SharedAccessKeyName=app", 1)
	cs = strings.Replace(cs, "SharedAccessKey="+cluster.Key, "SharedAccessKey="+key, 1)
	c, err := n.ClientFor(cs, e.secure, cluster.Retry)
	e.must("new client", err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// sends reports whether a key opens a queue for sending through node i.
func (e *env) sends(i int, key, queue string) bool {
	s, err := e.keyClient(i, key).NewSender(queue, nil)
	e.must("new sender", err)
	return s.SendMessage(e.ctx, text("signed"), nil) == nil
}

// opens waits until a key opens a queue through node i, or does not, and reports whether it came to that.
func (e *env) opens(i int, key, queue string, want bool) bool {
	for end := time.Now().Add(keysSoon); e.sends(i, key, queue) != want; {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
