package attack

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

const (
	exceeded = "amqp:resource-limit-exceeded"

	// mayGrow bounds how much resident memory may grow during an attack on it, in bytes. One connection took 1.2 GB once.
	mayGrow = 256 << 20
)

// overreach is one way to take more than a client without a token may have.
type overreach struct {
	name string
	do   func(c *raw.Client)
	want string // the text of the close
}

// overreaches are the ways of F2, each far beyond its limit.
func overreaches() []overreach {
	part := make([]byte, 60_000)
	half := func(c *raw.Client, handle, id uint32) {
		c.Send(&amqp.Transfer{Handle: handle, DeliveryID: amqp.Some(id), DeliveryTag: []byte{1}, More: true}, part)
	}
	request := func(handle uint32, source string) *amqp.Attach {
		return &amqp.Attach{Name: fmt.Sprint("link ", handle), Handle: handle, Role: amqp.RoleSender, InitialDeliveryCount: amqp.Some(uint32(0)),
			Source: &amqp.Source{Address: amqp.Some(source)}, Target: &amqp.Target{Address: amqp.Some("orders/$management")}}
	}
	return []overreach{
		{"sessions", func(c *raw.Client) {
			for i := range uint16(4_999) {
				c.Begin(i + 1)
			}
		}, "a client has at most 8 sessions before its first valid token."},
		{"links", func(c *raw.Client) {
			for i := range uint32(10_000) {
				c.Send(request(i, ""))
			}
		}, "a client has at most 16 links before its first valid token."},
		{"long addresses", func(c *raw.Client) {
			for i := range uint32(1_000) {
				c.Send(request(i, strings.Repeat("s", 30_000)))
			}
		}, "a client may send at most 262144 bytes before its first valid token."},
		{"halves of requests", func(c *raw.Client) {
			for i := range uint32(10) {
				c.Send(request(i, ""))
				for range 10 {
					half(c, i, i)
				}
			}
		}, "a client may send at most 262144 bytes before its first valid token."},
	}
}

// Clients without a token open sessions and links, and begin requests, as fast as they can. Each is disconnected with the
// limit that it met, and the node's memory hardly grows (F2).
func TestStrangersHoldLittle(t *testing.T) {
	onClusters(t, func(a *attack) string {
		all, rounds := overreaches(), size(3, 60)
		a.forgetPeaks()
		for range rounds {
			a.each(4*len(all)*len(a.c.Nodes), func(i int) error {
				return a.reach(a.c.Pick(i), all[i/len(a.c.Nodes)%len(all)])
			})
		}
		a.hardlyGrew()
		return fmt.Sprintf("%d connections of %d kinds to each node", rounds*4*len(all), len(all))
	})
}

// forgetPeaks makes hardlyGrew judge what comes now.
func (a *attack) forgetPeaks() {
	a.Helper()
	for _, n := range a.c.Nodes {
		a.must("forget the peak", n.ResetPeak())
	}
}

// hardlyGrew bounds the largest resident memory of every node since forgetPeaks.
func (a *attack) hardlyGrew() {
	a.Helper()
	for i, n := range a.c.Nodes {
		peak, err := n.Peak()
		a.must("peak", err)
		a.Logf("%s: %d MB before, at most %d MB", n.ID, a.before[i].rss>>20, peak>>20)
		if peak-a.before[i].rss > mayGrow {
			a.Errorf("%s grew from %d to %d MB", n.ID, a.before[i].rss>>20, peak>>20)
		}
	}
}

// reach demands that one client that takes too much is told so and disconnected.
func (a *attack) reach(n *cluster.Node, o overreach) error {
	c, err := raw.DialAs(a.ctx, n, raw.Plain, raw.Anonymous())
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	defer c.Close()
	a.sockets.Add(1)
	o.do(c)
	f, err := c.Await(raw.Is[*amqp.Close])
	if errors.Is(err, raw.ErrEnded) {
		return nil // what was on its way when the node closed the socket can take the close with it
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	p := f.P.(*amqp.Close)
	if p.Error == nil || p.Error.Condition != exceeded || !strings.HasPrefix(p.Error.Description, o.want) {
		return fmt.Errorf("%s: closed with %+v, want %s", o.name, p.Error, o.want)
	}
	return nil
}

// A key's token whose audience cannot be parsed opens nothing, and one for an entity nothing but that entity (F5).
func TestAudiencesThatAreNoAddresses(t *testing.T) {
	onClusters(t, func(a *attack) string {
		key := newKey()
		a.keys(a.queue, key, newKey())
		other := a.queue + "-witness"
		audiences := []string{"sb%3A%2F%2Flocalhost%2F" + a.queue, "sb%253A%252F%252Flocalhost%252F" + a.queue, a.queue, "", "/", "%", "sb://",
			"sb:///", "://localhost/", "localhost:x/" + a.queue, "sb://localhost/" + a.queue + "%00", "sb://localhost/%2e%2e/" + other}
		keys := []struct{ name, secret string }{{"app", key}, {cluster.KeyName, cluster.Key}}
		each := len(keys) * len(audiences)
		var opened atomic.Int64
		a.each(each*len(a.c.Nodes), func(i int) error {
			k, audience := keys[i%len(keys)], audiences[i%each/len(keys)]
			c, tokens, err := a.stranger(a.c.Pick(i / each))
			if err != nil {
				return err
			}
			defer c.Close()
			got, err := tokens.PutToken(audience, auth.NewToken(audience, k.name, k.secret, time.Now().Add(time.Hour)))
			if err != nil {
				return fmt.Errorf("put-token for %q: %w", audience, err)
			}
			if got.Code == http.StatusAccepted {
				opened.Add(1)
			}
			if _, err := c.Sender(other); raw.Condition(err) != unauthorized {
				return fmt.Errorf("%s's token for %q: another queue answers with %q, want %s", k.name, audience, raw.Condition(err), unauthorized)
			}
			return nil
		})
		return fmt.Sprintf("%d tokens, %d taken for their own entity", each*len(a.c.Nodes), opened.Load())
	})
}
