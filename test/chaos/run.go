package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/check"
)

// lockTime is the lock duration of every queue: short, so that locks run out during a run.
const lockTime = 10 * time.Second

// epsilon is how far apart the broker's clocks and the history's may be. All run on one machine; what
// differs is when a process gets to look.
const epsilon = 500 * time.Millisecond

func queues() []check.Queue {
	q := check.Queue{LockMillis: lockTime.Milliseconds(), MaxDelivery: 10}
	plain, sessions, spread, shared := q, q, q, q
	plain.Name, sessions.Name, spread.Name, shared.Name = "plain", "sessions", "spread", sharedQueue
	sessions.Sessions, spread.Partitioned, shared.Sessions = true, true, true
	return []check.Queue{plain, sessions, spread, shared}
}

// runConfig is one run over one cluster.
type runConfig struct {
	bed      bedConfig
	seed     uint64
	schedule schedule
	log      io.Writer
	leaks    bool // watch the budgets of a soak
}

// run builds a cluster, loads it, breaks it as scheduled, mends it, and judges.
func run(ctx context.Context, cfg runConfig, sup *supervisor) (o *outcome, err error) {
	b, err := newBed(ctx, cfg.bed, sup)
	defer func() { err = errors.Join(err, b.close()) }()
	if err != nil {
		return nil, err
	}
	w := &world{bed: b, queues: queues(), deferred: map[string][]int64{}}
	b.world = w
	w.rec = check.NewRecorder(epsilon, epsilon, w.queues...)
	if err := w.create(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	w.ctx = context.Background()
	var consumers, producers sync.WaitGroup
	taking, stopTaking := context.WithCancel(context.Background())
	making, stopMaking := context.WithCancel(context.Background())
	defer stopTaking()
	defer stopMaking()
	w.ctx, w.making = taking, making
	w.load(cfg.seed, &producers, &consumers)
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	var watch sync.WaitGroup
	watch.Go(func() { b.watch(watching) })
	budget := newBudget(cfg.leaks)
	s := &cfg.schedule
	s.rng, s.log = rand.New(rand.NewPCG(cfg.seed, 1)), cfg.log
	s.afterHeal = func(ctx context.Context) error { budget.look(ctx, b); return nil }
	o = &outcome{network: cfg.bed.network, seed: cfg.seed, schedule: s, world: w}
	if err := s.run(ctx, b); err != nil {
		return o, err
	}
	if ctx.Err() != nil {
		return o, fmt.Errorf("interrupted: %w", ctx.Err())
	}
	s.say("the faults are over")
	if err := b.awaitServing(serveLimit, nil); err != nil {
		o.findings = append(o.findings, err.Error())
	}
	wait(ctx, s.calm)
	if s.meet {
		w.shared.await(ctx)
	}
	stopMaking()
	producers.Wait()
	s.say("nothing is sent any more")
	if err := w.drain(s.say); err != nil {
		o.findings = append(o.findings, err.Error())
	}
	stopTaking()
	consumers.Wait()
	budget.look(ctx, b)
	stopWatching()
	watch.Wait()
	o.took, o.elections, o.leaks = time.Since(began), b.terms.elections(), budget.over()
	s.say("what the clients saw is judged, which takes some minutes after an hour of load")
	return o, o.conclude(cfg.bed.dir)
}

// conclude looks at what is left, keeps the history and judges it.
func (o *outcome) conclude(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	final, err := o.world.everything(ctx)
	if err != nil {
		o.findings = append(o.findings, fmt.Sprintf("I26: what is left cannot be looked at: %v", err))
	} else {
		o.world.rec.Finish(final)
	}
	h := o.world.rec.History()
	o.operations = len(h.Ops)
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return err
	}
	if err := errors.Join(h.Write(f), f.Close()); err != nil {
		return err
	}
	o.violations = check.CheckAll(h)
	o.world.shared.refused.Store(int64(len(formers(h))))
	o.world.bed.copies.Wait()
	o.findings = append(o.findings, o.world.bed.findings...)
	for _, n := range slices.Concat(o.world.bed.nodes, o.world.bed.guests) {
		o.findings = append(o.findings, n.findings()...)
	}
	o.measure(h)
	return nil
}

// load starts the clients: on every node producers and consumers of every queue, and a sharer; the queue of
// the sharers has one producer.
func (w *world) load(seed uint64, producers, consumers *sync.WaitGroup) {
	for i := range w.bed.nodes {
		for j := range w.queues {
			q := &w.queues[j]
			if q.Name == sharedQueue && i > 0 {
				continue
			}
			p, c := w.newClient(i, seed), w.newClient(i+1, seed)
			producers.Go(func() { p.produce(q) })
			switch {
			case q.Name == sharedQueue:
				for at := range w.bed.nodes {
					sharer := w.newClient(at, seed)
					consumers.Go(func() { sharer.share(q) })
				}
			case q.Sessions:
				second := w.newClient(i+2, seed)
				consumers.Go(func() { c.hold(q) })
				consumers.Go(func() { second.hold(q) })
			default:
				consumers.Go(func() { c.consume(q, check.InMain) })
			}
		}
	}
	for j := range w.queues {
		q := &w.queues[j]
		c := w.newClient(j, seed)
		consumers.Go(func() { c.consume(q, check.InDeadLetter) })
	}
}

// plainHTTP sends what the SDK meant for https in plain text to the same host and port.
type plainHTTP struct{ base *http.Transport }

// Do implements policy.Transporter.
func (p plainHTTP) Do(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme = "http"
	return p.base.RoundTrip(req)
}

// create makes the queues with the management client of the SDK.
func (w *world) create(ctx context.Context) error {
	a, err := administrator(w.bed.nodes[0])
	if err != nil {
		return err
	}
	lock, most := fmt.Sprintf("PT%dS", int(lockTime.Seconds())), int32(10)
	for i := range w.queues {
		q := &w.queues[i]
		_, err := a.CreateQueue(ctx, q.Name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
			LockDuration: &lock, MaxDeliveryCount: &most, RequiresSession: &q.Sessions,
			EnablePartitioning: &q.Partitioned}})
		if err != nil {
			return fmt.Errorf("create queue %s: %w", q.Name, err)
		}
	}
	return nil
}
