package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// The baseline of the front end: AMQP as ever, over one state machine in memory, without log,
// replication or disk. It runs in a process of its own, so that its CPU time is not the load's.

const frontendQueue = "bench"

// The only policy of the baseline. Its key guards nothing: the queue is empty and ends with the run.
const (
	frontendKeyName = "bench"
	frontendKey     = "bench"
)

// frontendStop bounds the end of the baseline.
const frontendStop = 20 * time.Second

// frontendVerb is the hidden command that the load generator starts.
const frontendVerb = "bench-frontend"

// measureFrontend starts the baseline and loads it.
func measureFrontend(ctx context.Context, cfg *loadConfig) (*report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{frontendVerb}
	if cfg.Sessions > 0 {
		args = append(args, "--sessions")
	}
	child := exec.CommandContext(ctx, self, args...)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe() // the child ends when this closes
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = in.Close(); _ = child.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the baseline did not start: %w", err)
	}
	one := *cfg
	one.PIDs, one.Queue = []int{child.Process.Pid}, frontendQueue
	t := &dial.Target{Host: strings.TrimSpace(line), Plain: true, KeyName: frontendKeyName, Key: frontendKey,
		Version: cfg.version}
	d := &dialer{targets: []*dial.Target{t}, limit: 10 * time.Second}
	return measure(ctx, &one, d, os.Stderr)
}

// NewFrontendCommand serves the baseline until its standard input ends.
func NewFrontendCommand() *cobra.Command {
	c := &cobra.Command{Use: frontendVerb, Hidden: true, Args: cobra.NoArgs}
	sessions := c.Flags().Bool("sessions", false, "the queue has sessions")
	c.RunE = func(c *cobra.Command, _ []string) error {
		addr, stop, err := startFrontend(*sessions)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(c.OutOrStdout(), addr); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, c.InOrStdin())
		return stop()
	}
	return c
}

// startFrontend serves a queue in memory on a free port of loopback.
func startFrontend(sessions bool) (addr string, stop func() error, err error) {
	policies, err := auth.New(0)
	if err != nil {
		return "", nil, err
	}
	err = policies.Replace("", auth.Policy{Name: frontendKeyName, Primary: frontendKey, Rights: auth.All})
	if err != nil {
		return "", nil, err
	}
	b := newMemoryBroker(sessions)
	cfg := transport.Defaults()
	cfg.Incarnation = 1
	front, err := transport.New(cfg, transport.Deps{Broker: b, Catalog: b, Policies: policies,
		Refusals: refusal.New(1, hclog.NewNullLogger(), time.Now), Handler: http.NotFoundHandler()}, hclog.NewNullLogger())
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	served := make(chan error, 1)
	go func() { served <- front.Serve(l, nil) }()
	return l.Addr().String(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), frontendStop)
		defer cancel()
		return errors.Join(front.Close(ctx), <-served)
	}, nil
}

// memoryBroker is a partition without log: one state machine under one lock, bodies in memory.
type memoryBroker struct {
	descriptor fsm.Descriptor
	began      time.Time

	mu     sync.Mutex
	state  *fsm.State
	index  uint64
	bodies map[fsm.BodyRef][]byte
	woken  chan struct{} // closed and replaced when something was woken
}

var (
	_ transport.Broker  = (*memoryBroker)(nil)
	_ transport.Catalog = (*memoryBroker)(nil)
)

func newMemoryBroker(sessions bool) *memoryBroker {
	b := &memoryBroker{began: time.Now(), state: fsm.New(1), bodies: map[fsm.BodyRef][]byte{},
		woken: make(chan struct{}),
		descriptor: fsm.Descriptor{ID: 1, Version: 1, Kind: fsm.Queue, Name: frontendQueue,
			Partitions: []fsm.PartitionID{1}, RequiresSession: sessions, LockDuration: 60_000,
			MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 80 << 30,
			DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited}}
	b.apply(fsm.Request{Command: &fsm.BecomeLeader{Node: "bench"}})
	b.apply(fsm.Request{Entity: 1, Command: &fsm.PutEntity{Descriptor: b.descriptor}})
	return b
}

// apply does one request. Its bodies are copied: they are the caller's memory.
func (b *memoryBroker) apply(q fsm.Request) fsm.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index++
	q.ID = fsm.RequestID{} // there is no unknown ending to ask about again
	now := fsm.Wall(time.Now().UnixMilli())
	e := fsm.Entry{Wall: now, Lease: fsm.Lease(time.Since(b.began).Milliseconds()) + 1, Epoch: 1,
		Requests: []fsm.Request{q}}
	if b.index == 1 {
		e.Epoch = 0
	}
	for i := range 8 {
		e.Seed[i] = byte(b.index >> (8 * i))
	}
	if in, ok := q.Command.(*fsm.Enqueue); ok {
		for i := range in.Messages {
			m := &in.Messages[i]
			m.BodyOffset = uint32(i) // distinct is enough
			ref := fsm.BodyRef{Index: b.index, Offset: m.BodyOffset, Length: uint32(len(m.Body))}
			b.bodies[ref] = append([]byte(nil), m.Body...)
		}
	}
	result := b.state.Apply(b.index, &e)
	o := result.Outcomes[0]
	for i := range o.Locked {
		o.Locked[i].Body = b.bodies[o.Locked[i].Ref]
	}
	for _, ref := range result.Freed {
		delete(b.bodies, ref)
	}
	if len(result.Wake) > 0 {
		close(b.woken)
		b.woken = make(chan struct{})
	}
	return o
}

// Propose implements transport.Broker.
func (b *memoryBroker) Propose(ctx context.Context, _ fsm.RequestID, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	var wait fsm.Millis
	empty := func(o *fsm.Outcome) bool { return false }
	switch c := c.(type) {
	case *fsm.Lock:
		wait = c.Wait
		empty = func(o *fsm.Outcome) bool { return o.Refusal == fsm.None && len(o.Locked) == 0 }
	case *fsm.AcceptSession:
		wait = c.Wait
		empty = func(o *fsm.Outcome) bool { return o.Refusal == fsm.NoSession }
	}
	end := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer end.Stop()
	for {
		b.mu.Lock()
		woken := b.woken
		b.mu.Unlock()
		o := b.apply(fsm.Request{Entity: k.Entity, Sub: k.Sub, Command: c})
		if wait == 0 || !empty(&o) {
			return o, nil
		}
		select {
		case <-woken:
		case <-end.C:
			return o, nil
		case <-ctx.Done():
			return fsm.Outcome{}, ctx.Err()
		}
	}
}

// Await implements transport.Broker.
func (b *memoryBroker) Await(ctx context.Context, k fsm.Key) error {
	b.mu.Lock()
	woken := b.woken
	there := b.state.Deliverable(fsm.WaitKey{Entity: k.Entity, Sub: k.Sub})
	b.mu.Unlock()
	if there {
		return nil
	}
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Query implements transport.Broker.
func (b *memoryBroker) Query(_ context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.state.Query(fsm.QueryRequest{Entity: k.Entity, Sub: k.Sub, Query: q})
	for i := range a.Messages {
		a.Messages[i].Body = b.bodies[a.Messages[i].Ref]
	}
	return a, nil
}

// Entity implements transport.Catalog.
func (b *memoryBroker) Entity(_ context.Context, name string) (*fsm.Descriptor, error) {
	if !strings.EqualFold(name, frontendQueue) {
		return nil, fmt.Errorf("%s: %w", name, fsm.ErrNoEntity)
	}
	return &b.descriptor, nil
}
