package attack

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// held is an open connection with a sending and a receiving link, and how it was let in.
type held struct {
	how      string
	c        *raw.Client
	sender   *amqp.Attach
	receiver *amqp.Attach
}

func newKey() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// keys gives a queue a policy with two keys, none if they are empty, and waits until every node knows them.
func (a *attack) keys(queue, primary, secondary string) {
	a.Helper()
	m, err := a.c.Nodes[0].Admin(false)
	a.must("admin client", err)
	rules := []admin.AuthorizationRule{}
	if primary != "" {
		rules = append(rules, admin.AuthorizationRule{KeyName: to.Ptr("app"), PrimaryKey: &primary, SecondaryKey: &secondary,
			AccessRights: []admin.AccessRight{admin.AccessRightSend, admin.AccessRightListen}})
	}
	_, err = m.UpdateQueue(a.ctx, queue, admin.QueueProperties{AuthorizationRules: rules}, nil)
	a.must("change the keys", err)
	for _, n := range a.c.Nodes {
		a.await("a node knows the keys", func() bool {
			h, err := a.enter(n, queue, "", primary, time.Hour)
			if err == nil {
				h.c.Close()
			}
			return (err == nil) == (primary != "")
		})
	}
}

// enter opens links with a key, by a token that lives for a time, or with SASL PLAIN if how is "PLAIN".
func (a *attack) enter(n *cluster.Node, queue, how, key string, live time.Duration) (*held, error) {
	init := raw.Anonymous()
	if how == "PLAIN" {
		init = &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00app\x00" + key)}
	}
	c, err := raw.DialAs(a.ctx, n, raw.Plain, init)
	if err != nil {
		return nil, err
	}
	a.sockets.Add(1)
	h := &held{how: n.ID + " " + how, c: c}
	if err := h.open(queue, how, key, live); err != nil {
		c.Close()
		return nil, err
	}
	return h, nil
}

func (h *held) open(queue, how, key string, live time.Duration) error {
	if how != "PLAIN" {
		tokens, err := h.c.Tokens()
		if err != nil {
			return err
		}
		got, err := tokens.PutToken(address(queue), auth.NewToken(address(queue), "app", key, time.Now().Add(live)))
		if err != nil {
			return err
		}
		if got.Code != 202 {
			return fmt.Errorf("put-token: %d %s", got.Code, got.Text)
		}
	}
	var err error
	if h.sender, err = h.c.Sender(queue); err != nil {
		return err
	}
	h.receiver, err = h.c.Receiver(queue, nil)
	return err
}

// works demands that both links are open: a message goes in and comes back.
func (a *attack) works(h *held) {
	a.Helper()
	if _, err := h.c.Deliver(h.sender.Handle, nil, amqp.AppendData(nil, []byte(h.how))); err != nil {
		a.Errorf("%s: send: %v", h.how, err)
		return
	}
	m, err := h.c.Receive(h.receiver.Handle)
	if err != nil {
		a.Errorf("%s: receive: %v", h.how, err)
		return
	}
	if m.Body != h.how {
		a.Errorf("%s: received %q", h.how, m.Body)
	}
	if _, err := h.c.Settle(m.ID, amqp.Accepted{}); err != nil {
		a.Errorf("%s: complete: %v", h.how, err)
	}
}

// ends demands that both links end, because of the right that is gone, and nothing else does.
func (a *attack) ends(h *held) error {
	for range 2 {
		f, err := h.c.Await(func(f raw.Frame) bool {
			return raw.Is[*amqp.Detach](f) || raw.Is[*amqp.End](f) || raw.Is[*amqp.Close](f)
		})
		if err != nil {
			return fmt.Errorf("%s: the links stay: %w", h.how, err)
		}
		p, ok := f.P.(*amqp.Detach)
		if !ok || p.Error == nil || p.Error.Condition != unauthorized {
			return fmt.Errorf("%s: ended with %+v, want a detach with %s", h.how, f.P, unauthorized)
		}
	}
	h.c.Close()
	return nil
}

// Keys that are changed, removed or whose tokens expire under open links: the links end with their reason, whichever way they
// were let in, and those of the other key stay.
func TestChangedAndExpiredKeysEndOpenLinks(t *testing.T) {
	onClusters(t, func(a *attack) string {
		m, err := a.c.Nodes[0].Admin(false)
		a.must("admin client", err)
		for i := range a.c.Nodes {
			_, err := m.CreateQueue(a.ctx, fmt.Sprint(a.queue, i), nil)
			a.must("create a queue", err)
		}
		rounds := size(1, 30)
		for range rounds {
			a.each(len(a.c.Nodes), func(i int) error { // a queue for each, so that each receives what it sent
				a.churn(a.c.Nodes[i], fmt.Sprint(a.queue, i))
				return nil
			})
		}
		return fmt.Sprintf("%d links in %d rounds", 8*rounds*len(a.c.Nodes), rounds)
	})
}

// churn opens links through one node by a token, by SASL PLAIN, by a token that expires soon, and by the other key. Then it
// changes the key, and at last it removes the policy.
func (a *attack) churn(n *cluster.Node, queue string) {
	a.Helper()
	primary, secondary := newKey(), newKey()
	a.keys(queue, primary, secondary)
	var old []*held
	for _, how := range []string{"token", "PLAIN"} {
		h, err := a.enter(n, queue, how, primary, time.Hour)
		a.must(how, err)
		a.works(h)
		h.c.Send(&amqp.Detach{Handle: h.receiver.Handle, Closed: true}) // leaves the messages to the next
		_, err = h.c.Await(raw.Is[*amqp.Detach])
		a.must("detach", err)
		h.receiver, err = h.c.Receiver(queue, nil)
		a.must("receiver", err)
		old = append(old, h)
	}
	short, err := a.enter(n, queue, "short token", primary, 2*time.Second)
	a.must("a short token", err)
	stays, err := a.enter(n, queue, "secondary", secondary, time.Hour)
	a.must("the other key", err)
	a.must("expire", a.ends(short))
	a.keys(queue, newKey(), secondary)
	a.each(len(old), func(i int) error { return a.ends(old[i]) })
	a.works(stays)
	a.keys(queue, "", "")
	a.must("remove", a.ends(stays))
}
