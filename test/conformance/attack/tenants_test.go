package attack

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// Rules that look through long properties, and messages that have them. The sends are refused as a whole with the number of
// steps, a small message still goes through every rule, and the witness meets no error (F3).
func TestRulesThatTakeLong(t *testing.T) {
	onClusters(t, func(a *attack) string {
		topic, rules := a.queue+"-topic", size(100, 2_000)
		m, err := a.c.Nodes[0].Admin(false)
		a.must("admin client", err)
		_, err = m.CreateTopic(a.ctx, topic, nil)
		a.must("create a topic", err)
		const perSubscription = 100
		for s := range rules / perSubscription {
			name := fmt.Sprint("s", s)
			_, err = m.CreateSubscription(a.ctx, topic, name, nil)
			a.must("create a subscription", err)
			_, err = m.DeleteRule(a.ctx, topic, name, "$Default", nil)
			a.must("delete $Default", err)
			for r := range perSubscription {
				_, err = m.CreateRule(a.ctx, topic, name, &admin.CreateRuleOptions{Name: to.Ptr(fmt.Sprint("r", r)),
					Filter: &admin.SQLFilter{Expression: fmt.Sprintf("a LIKE '%%_a_a..b%d%%' OR a LIKE '%%_a_a..c%d%%'", r, r)}})
				a.must("create a rule", err)
			}
		}
		c, err := a.c.Pick(1).Client(false, azservicebus.RetryOptions{MaxRetries: -1})
		a.must("client", err)
		defer c.Close(a.ctx)
		a.sockets.Add(1)
		sender, err := c.NewSender(topic, nil)
		a.must("sender", err)
		long, sends := strings.Repeat("a", 30_000), size(10, 200)
		for i := range sends {
			batch, err := sender.NewMessageBatch(a.ctx, nil)
			a.must("batch", err)
			for range 30 {
				a.must("add", batch.AddMessage(&azservicebus.Message{ApplicationProperties: map[string]any{"a": long}}, nil))
			}
			err = sender.SendMessageBatch(a.ctx, batch, nil)
			if err == nil || !strings.Contains(err.Error(), exceeded) || !strings.Contains(err.Error(), "the rules of the topic take more than") {
				a.Fatalf("send %d: %v", i, err)
			}
		}
		a.must("a small message", sender.SendMessage(a.ctx, &azservicebus.Message{Body: []byte("small"),
			ApplicationProperties: map[string]any{"a": "xaya..b7"}}, nil))
		a.onlyMessage(c, topic, "s0", "small")
		for _, n := range a.c.Nodes {
			a.Logf("%s: the longest batch of entries took %v s", n.ID, a.longestApply(n))
		}
		return fmt.Sprintf("%d rules, %d batches of 30 messages of 30 KB", rules, sends)
	})
}

// longestApply returns the longest time a replica of a node took to apply a batch of entries, in seconds.
func (a *attack) longestApply(n *cluster.Node) (longest float64) {
	a.Helper()
	b, err := n.Get(a.ctx, "/metrics")
	a.must("metrics", err)
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "busbar_partition_apply_peak_seconds{") {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
		a.must("a figure", err)
		longest = max(longest, v)
	}
	return longest
}

// onlyMessage demands that a subscription has one message, with this body.
func (a *attack) onlyMessage(c *azservicebus.Client, topic, subscription, body string) {
	a.Helper()
	r, err := c.NewReceiverForSubscription(topic, subscription, nil)
	a.must("receiver", err)
	got, err := r.ReceiveMessages(a.ctx, 1, nil)
	a.must("receive", err)
	if string(got[0].Body) != body {
		a.Errorf("%.100q was received, want %q", got[0].Body, body)
	}
	a.must("complete", r.CompleteMessage(a.ctx, got[0], nil))
	m, err := a.c.Nodes[0].Admin(false)
	a.must("admin client", err)
	p, err := m.GetSubscriptionRuntimeProperties(a.ctx, topic, subscription, nil)
	if err != nil || p == nil || p.TotalMessageCount != 0 {
		a.Errorf("%s shows %+v, %v", subscription, p, err)
	}
}

// A client that may only listen stages large session states in transactions and never ends them. It is refused when they
// have as many bytes as a transaction may, and the node's memory hardly grows (F4).
func TestTransactionsThatAreNeverEnded(t *testing.T) {
	onClusters(t, func(a *attack) string {
		name := a.queue + "-sessions"
		m, err := a.c.Nodes[0].Admin(false)
		a.must("admin client", err)
		key := newKey()
		_, err = m.CreateQueue(a.ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{RequiresSession: to.Ptr(true),
			LockDuration: to.Ptr("PT5M"), AuthorizationRules: []admin.AuthorizationRule{{KeyName: to.Ptr("app"), PrimaryKey: &key,
				SecondaryKey: to.Ptr(newKey()), AccessRights: []admin.AccessRight{admin.AccessRightListen}}}}})
		a.must("create a queue", err)
		a.forgetPeaks()
		transactions, each := size(3, 30), size(50, 500)
		state := make([]byte, 1_000_000)
		staged, refused := 0, 0
		for i := range transactions {
			c, err := raw.DialAs(a.ctx, a.c.Pick(i), raw.Plain, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00app\x00" + key)})
			a.must("connect", err)
			a.sockets.Add(1)
			defer c.Close()
			session := fmt.Sprint("session ", i)
			_, err = c.Receiver(name, session)
			a.must("accept a session", err)
			asker, err := c.Asker(name)
			a.must("request links", err)
			tx, err := c.Coordinator()
			a.must("coordinator", err)
			id, err := c.Declare(tx.Handle)
			a.must("declare", err)
			body := amqp.Map{{Key: "session-id", Value: session}, {Key: "session-state", Value: state}}
			for range each {
				got, err := asker.Ask("set-session-state", &amqp.TransactionalState{TxnID: id}, body)
				a.must("set-session-state", err)
				switch {
				case got.Code == 200:
					staged++
				case strings.HasPrefix(got.Text, "TransactionSizeExceeded") || got.Condition == exceeded:
					refused++
				default:
					a.Fatalf("staging: %d %s %s", got.Code, got.Condition, got.Text)
				}
			}
		}
		if staged == 0 || refused < transactions {
			a.Errorf("%d states were staged, %d refused", staged, refused)
		}
		a.hardlyGrew()
		return fmt.Sprintf("%d transactions of %d states of 1 MB, %d staged", transactions, each, staged)
	})
}
