package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// attempt is one send of a prober.
type attempt struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Error string    `json:"error,omitempty"`
}

// prober sends one small message after the other through one node and notes when each was
// acknowledged. It tries everything once: what the broker does not hide is seen.
type prober struct {
	node     *node
	queue    string
	attempts []attempt // owned by run until it returns
}

// maxAttempts bounds what one prober of one trial notes: ten minutes at its pace.
const maxAttempts = 60_000

// run sends until ctx ends.
func (p *prober) run(ctx context.Context) {
	for ctx.Err() == nil && len(p.attempts) < maxAttempts {
		began := time.Now()
		err := p.connection(ctx)
		if err != nil && ctx.Err() == nil {
			p.attempts = append(p.attempts, attempt{began, time.Now(), shorten(err.Error())})
		}
		wait(ctx, outageEvery)
	}
}

// connection sends over one connection until something fails.
func (p *prober) connection(ctx context.Context) error {
	sdk, err := azservicebus.NewClientFromConnectionString(p.node.Plain(),
		&azservicebus.ClientOptions{RetryOptions: once})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		_ = sdk.Close(ctx)
	}()
	tx, err := sdk.NewSender(p.queue, nil)
	if err != nil {
		return err
	}
	body := []byte("a small message, as events are: one line of text")
	for ctx.Err() == nil && len(p.attempts) < maxAttempts {
		began := time.Now()
		limit, cancel := context.WithTimeout(ctx, opLimit)
		err := tx.SendMessage(limit, &azservicebus.Message{Body: body}, nil)
		cancel()
		if err != nil {
			return err
		}
		p.attempts = append(p.attempts, attempt{Begin: began, End: time.Now()})
		wait(ctx, outageEvery)
	}
	return nil
}

// gap is a time without service.
type gap struct {
	took time.Duration
	from time.Time
	who  string
}

// String tells the gap in one line.
func (g gap) String() string {
	return fmt.Sprintf("%s from %s (%s)", g.took.Round(time.Millisecond), g.from.Format(clock), g.who)
}

func (g *gap) longer(other gap, who string) {
	if other.took > g.took {
		*g = gap{other.took, other.from, who}
	}
}

// longest returns the longest time between two acknowledged sends that overlaps a span. A client that
// had none at all was without service for the whole span.
func (p *prober) longest(from, to time.Time) (g gap) {
	last := time.Time{}
	see := func(now time.Time) {
		if !last.IsZero() && now.After(from) && last.Before(to) && now.Sub(last) > g.took {
			g = gap{took: now.Sub(last), from: last}
		}
		last = now
	}
	for _, a := range p.attempts {
		if a.Error == "" {
			see(a.End)
		}
	}
	if last.IsZero() {
		last = from
	}
	if last.Before(to) {
		see(to) // nothing was acknowledged from then on
	}
	return g
}

// until returns a prober that has seen only what ended before a moment.
func (p *prober) until(end time.Time) *prober {
	n := 0
	for n < len(p.attempts) && p.attempts[n].End.Before(end) {
		n++
	}
	last := attempt{Begin: end, End: end} // what is under way then is not held against the time before
	return &prober{node: p.node, queue: p.queue, attempts: append(slices.Clone(p.attempts[:n]), last)}
}

// administrator is a management client of the SDK for a node without TLS.
func administrator(n *node) (*admin.Client, error) {
	return admin.NewClientFromConnectionString(n.Plain(), &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: plainHTTP{&http.Transport{DisableKeepAlives: true}},
			Retry: policy.RetryOptions{MaxRetries: 3}}})
}

// createPlain makes queues with nothing special about them.
func createPlain(ctx context.Context, n *node, names ...string) error {
	a, err := administrator(n)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := a.CreateQueue(ctx, name, nil); err != nil {
			return fmt.Errorf("create queue %s: %w", name, err)
		}
	}
	return nil
}
