package conformance

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

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
