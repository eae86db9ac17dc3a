package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

// singleBroker is a Broker and Catalog of one node: real states, no log, no replicas.
type singleBroker struct {
	mu       sync.Mutex
	states   []*fsm.State // of partitions 1 ...
	index    uint64
	entries  map[uint64][]byte
	entities map[string]*fsm.Descriptor
	byID     map[fsm.EntityID]*fsm.Descriptor
	nextID   fsm.EntityID
	version  uint64
	turn     int
	pump     uint64
	changed  chan struct{}
	told     chan struct{}                                  // closed when version grows
	lagging  map[string]*fsm.Descriptor                     // what Entity answers in the place of what there is
	fail     func(fsm.Command) error                        // a failure to inject
	failAs   func(fsm.RequestID, fsm.Command) error         // the same, by the request's id
	answer   func(fsm.Key, fsm.Command) (fsm.Outcome, bool) // an outcome in the place of the state's
	before   func(fsm.Command) chan struct{}                // what a command waits for before anything else, nil for nothing
	after    func(fsm.Command, fsm.Outcome) chan struct{}   // what an answer waits for when it is applied, nil for nothing
	dropped  []uint64                                       // pumps of DropPumps
	commands map[string]int
}

const testPolicy, testKey = "RootManageSharedAccessKey", "c2VjcmV0IGtleSBmb3IgdGVzdHM="

func newSingleBroker(partitions int) *singleBroker {
	b := &singleBroker{
		entries: map[uint64][]byte{}, entities: map[string]*fsm.Descriptor{},
		byID: map[fsm.EntityID]*fsm.Descriptor{}, changed: make(chan struct{}), commands: map[string]int{},
		told: make(chan struct{}),
	}
	for i := range partitions {
		b.states = append(b.states, fsm.New(fsm.PartitionID(i+1)))
		b.index++
		b.states[i].Apply(b.index, &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{Node: "n"}}}})
	}
	return b
}

func (b *singleBroker) epoch(i int) uint64 { return uint64(i + 1) }

// queue creates an entity; edit may change its description.
func (b *singleBroker) queue(name string, edit ...func(*fsm.Descriptor)) *fsm.Descriptor {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextID++
	d := &fsm.Descriptor{
		ID: b.nextID, Kind: fsm.Queue, Name: name, Partitions: []fsm.PartitionID{1},
		LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30,
		DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited, DuplicateWindow: 600_000,
	}
	for _, f := range edit {
		f(d)
	}
	b.putLocked(d)
	return d
}

// update changes an entity.
func (b *singleBroker) update(name string, edit func(*fsm.Descriptor)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := *b.entities[strings.ToLower(name)]
	edit(&d)
	b.putLocked(&d)
}

func (b *singleBroker) putLocked(d *fsm.Descriptor) {
	b.grewLocked()
	d.Version = b.version
	b.entities[strings.ToLower(d.Name)] = d
	b.byID[d.ID] = d
	for _, p := range d.Partitions {
		b.applyLocked(int(p)-1, fsm.Request{Entity: d.ID, Command: &fsm.PutEntity{Descriptor: *d}})
	}
}

// grewLocked notes a change of the catalog.
func (b *singleBroker) grewLocked() {
	b.version++
	close(b.told)
	b.told = make(chan struct{})
}

// Changed implements Changes.
func (b *singleBroker) Changed() (uint64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version, b.told
}

func (b *singleBroker) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grewLocked()
	d := b.entities[strings.ToLower(name)]
	delete(b.entities, strings.ToLower(name))
	delete(b.byID, d.ID)
	for _, p := range d.Partitions {
		b.applyLocked(int(p)-1, fsm.Request{Entity: d.ID, Command: &fsm.DropEntity{}})
	}
}

// tick moves the clocks.
func (b *singleBroker) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.states {
		b.applyLocked(i, fsm.Request{Command: &fsm.Tick{}})
	}
}

func (b *singleBroker) applyLocked(i int, r fsm.Request) fsm.Outcome {
	now := fsm.Wall(time.Now().UnixMilli())
	e := &fsm.Entry{Wall: now, Lease: fsm.Lease(now), Epoch: b.epoch(i), Requests: []fsm.Request{r}}
	binary.BigEndian.PutUint64(e.Seed[:], b.index) // chance is the same in every run
	raw := fsm.AppendEntry(nil, e)
	e, err := fsm.DecodeEntry(raw)
	if err != nil {
		panic(err)
	}
	b.index++
	b.entries[b.index] = raw
	res := b.states[i].Apply(b.index, e)
	out := res.Outcomes[0]
	for n := range out.Locked {
		b.fillLocked(&out.Locked[n])
	}
	if len(res.Wake) > 0 || len(res.Dropped) > 0 {
		close(b.changed)
		b.changed = make(chan struct{})
	}
	return out
}

func (b *singleBroker) fillLocked(d *fsm.Delivery) {
	raw := b.entries[d.Ref.Index]
	d.Body = append([]byte(nil), raw[d.Ref.Offset:d.Ref.Offset+d.Ref.Length]...)
}

// route returns the partition's index, or an error.
func (b *singleBroker) routeLocked(k fsm.Key) (int, error) {
	d := b.byID[k.Entity]
	if d == nil {
		return 0, fmt.Errorf("entity %d: %w", k.Entity, fsm.ErrNoEntity)
	}
	share := 0
	if n := len(d.Partitions); n > 1 {
		switch k.By {
		case fsm.ByShare:
			share = int(k.Share)
		case fsm.ByText:
			share = fsm.KeyShare(k.Text, n)
		default:
			b.turn++
			share = b.turn % n
		}
	}
	return int(d.Partitions[share]) - 1, nil
}

// Begin implements Beginner for every other pump, so that tests see both ways. Propose takes the rest.
func (b *singleBroker) Begin(id fsm.RequestID, k fsm.Key, c fsm.Command, done func(fsm.Outcome, error, waist.Rest)) (waist.Cancel, bool) {
	if id.Pump%2 == 0 {
		return nil, false
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		out, err := b.Propose(ctx, id, k, c)
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		cancel(nil)
		done(out, err, nil)
	}()
	return cancel, true
}

func (b *singleBroker) Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	var parks bool
	var deadline <-chan time.Time
	var wait time.Duration
	switch c := c.(type) {
	case *fsm.Lock:
		parks, wait = true, time.Duration(c.Wait)*time.Millisecond
	case *fsm.WatchSession:
		parks, wait = true, time.Duration(c.Wait)*time.Millisecond
	case *fsm.AcceptSession:
		parks, wait = c.Next, time.Duration(c.Wait)*time.Millisecond
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		deadline = t.C
	}
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil {
		if wait := before(c); wait != nil {
			<-wait
		}
	}
	for {
		b.mu.Lock()
		b.commands[strings.TrimPrefix(fmt.Sprintf("%T", c), "*fsm.")]++
		if err := ctx.Err(); err != nil {
			b.mu.Unlock()
			return fsm.Outcome{}, err
		}
		if b.fail != nil {
			if err := b.fail(c); err != nil {
				b.mu.Unlock()
				var refused *fsm.RefusedError
				if errors.As(err, &refused) {
					return fsm.Outcome{Refusal: refused.Refusal, Detail: refused.Detail}, nil
				}
				return fsm.Outcome{}, err
			}
		}
		if b.failAs != nil {
			if err := b.failAs(id, c); err != nil {
				b.mu.Unlock()
				return fsm.Outcome{}, err
			}
		}
		if p, ok := c.(*fsm.DropPumps); ok {
			b.dropped = append(b.dropped, p.Pumps...)
		}
		if b.answer != nil {
			if out, ok := b.answer(k, c); ok {
				b.mu.Unlock()
				return out, nil
			}
		}
		i, err := b.routeLocked(k)
		if err != nil {
			b.mu.Unlock()
			return fsm.Outcome{}, err
		}
		if parks { // a parked request is not the same request each time that it is tried here
			b.pump++
			id = fsm.RequestID{Node: id.Node, Pump: 1<<62 + b.pump, Counter: 1}
		}
		if e, is := c.(*fsm.Enqueue); is {
			e.Seal(math.MaxInt)
		}
		out := b.applyLocked(i, fsm.Request{ID: id, Entity: k.Entity, Sub: k.Sub, Command: c})
		changed := b.changed
		var held chan struct{}
		if b.after != nil {
			held = b.after(c, out)
		}
		b.mu.Unlock()
		if held != nil {
			<-held
		}
		empty := out.Refusal == fsm.NoSession || out.Refusal == fsm.None && len(out.Locked) == 0 && out.Session.Token.IsZero()
		if !parks || wait == 0 || !empty {
			return out, nil
		}
		select {
		case <-changed:
		case <-deadline:
			return out, nil
		case <-ctx.Done():
			return fsm.Outcome{}, ctx.Err()
		}
	}
}

func (b *singleBroker) Await(ctx context.Context, k fsm.Key) error {
	for {
		b.mu.Lock()
		i, err := b.routeLocked(k)
		if err != nil {
			b.mu.Unlock()
			return err
		}
		// What came before the call counts too, or it would be waited for in vain (S-267).
		wait := fsm.WaitKey{Entity: k.Entity, Sub: k.Sub}
		if k.Sub == fsm.Main && b.byID[k.Entity].RequiresSession {
			wait.Kind = fsm.WaitSession
		}
		if b.states[i].Deliverable(wait) {
			b.mu.Unlock()
			return nil
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
			return nil
		case <-time.After(30 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *singleBroker) Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fsm.Answer{}, err
	}
	i, err := b.routeLocked(k)
	if err != nil {
		return fsm.Answer{}, err
	}
	b.applyLocked(i, fsm.Request{Command: &fsm.Barrier{}})
	a := b.states[i].Query(fsm.QueryRequest{Entity: k.Entity, Sub: k.Sub, Query: q})
	for n := range a.Messages {
		b.fillLocked(&a.Messages[n])
	}
	return a, nil
}

func (b *singleBroker) Entity(ctx context.Context, name string) (*fsm.Descriptor, error) {
	b.mu.Lock()
	d := b.lagging[name]
	b.mu.Unlock()
	if d != nil {
		return d, ctx.Err()
	}
	return b.Get(ctx, name)
}

// Get implements Rules.
func (b *singleBroker) Get(ctx context.Context, name string) (*fsm.Descriptor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.entities[strings.ToLower(name)]; d != nil {
		return d, ctx.Err()
	}
	return nil, fmt.Errorf("entity %q: %w", name, fsm.ErrNoEntity)
}

// counts returns the counters of an entity, over its shares.
func (b *singleBroker) counts(t *testing.T, name string) fsm.EntityCounts {
	t.Helper()
	d, err := b.Entity(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	var sum fsm.EntityCounts
	for i := range d.Partitions {
		a, err := b.Query(context.Background(), waist.ShareKey(d, fsm.Main, i), &fsm.Counts{})
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(a.Counts)
	}
	return sum
}

func testPolicies(t testing.TB) *auth.Policies {
	t.Helper()
	p, err := auth.New(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Replace("", namespacePolicies()...); err != nil {
		t.Fatal(err)
	}
	return p
}

// namespacePolicies are the policies that every test server begins with.
func namespacePolicies() []auth.Policy {
	return []auth.Policy{
		{Name: testPolicy, Primary: testKey, Rights: auth.All},
		{Name: "listener", Primary: testKey, Rights: auth.Listen},
		{Name: "sender", Primary: testKey, Rights: auth.Send},
	}
}

func testConfig() Config {
	c := Defaults()
	c.Incarnation = 7
	c.Namespace = "localhost"
	return c
}

func testLogger(t testing.TB) hclog.Logger {
	t.Helper()
	if testing.Verbose() {
		return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: t.Output()})
	}
	return hclog.NewNullLogger()
}

// testServer is a server on a real listener.
type testServer struct {
	*Server
	broker *singleBroker
	addr   string
}

func startServer(t testing.TB, partitions int, edit ...func(*Config)) *testServer {
	t.Helper()
	return startLogged(t, testLogger(t), partitions, edit...)
}

func startLogged(t testing.TB, log hclog.Logger, partitions int, edit ...func(*Config)) *testServer {
	t.Helper()
	return startAt(t, log, time.Now, partitions, edit...)
}

// startAt is startLogged with the clock of the log of refusals.
func startAt(t testing.TB, log hclog.Logger, now func() time.Time, partitions int, edit ...func(*Config)) *testServer {
	t.Helper()
	cfg := testConfig()
	for _, f := range edit {
		f(&cfg)
	}
	b := newSingleBroker(partitions)
	s, err := New(cfg, Deps{Broker: b, Catalog: b, Policies: testPolicies(t), Refusals: refusal.New(7, log, now)}, log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, nil) }()
	stop := make(chan struct{})
	ticked := make(chan struct{})
	go func() {
		defer close(ticked)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.tick()
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		close(stop)
		<-ticked
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &testServer{Server: s, broker: b, addr: l.Addr().String()}
}
