package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

const (
	root    = "RootManageSharedAccessKey"
	rootKey = "SAS_KEY_VALUE"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 123e6, time.UTC)

// world is the rest of the broker, in memory: a catalog with the rules of the real one, counters
// and a cluster that say what the test wants.
type world struct {
	mu       sync.Mutex
	entities map[string]*fsm.Descriptor // by name in lower case
	last     fsm.EntityID

	counts     fsm.EntityCounts
	incomplete bool
	failure    error // of every call
	ready      error
	transfers  []string
	transfer   error
	meanwhile  func()        // comes just ahead of an update, once
	block      chan struct{} // Get waits until it is closed, or the context ends
	entered    chan struct{} // Get says that it waits
}

func (w *world) Get(ctx context.Context, name string) (*fsm.Descriptor, error) {
	if w.block != nil {
		w.entered <- struct{}{}
		select {
		case <-w.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return nil, w.failure
	}
	if d, ok := w.entities[strings.ToLower(name)]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("entity %q: %w", name, fsm.ErrNoEntity)
}

func (w *world) Some(ctx context.Context, names []string) ([]*fsm.Descriptor, error) {
	all := make([]*fsm.Descriptor, len(names))
	for i, name := range names {
		d, err := w.Get(ctx, name)
		if err != nil && !errors.Is(err, fsm.ErrNoEntity) {
			return nil, err
		}
		all[i] = d
	}
	return all, nil
}

func (w *world) List(
	_ context.Context, kind fsm.EntityKind, skip, top int,
) ([]*fsm.Descriptor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return nil, w.failure
	}
	var all []*fsm.Descriptor
	for _, d := range w.entities {
		if d.Kind == kind {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *fsm.Descriptor) int {
		return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	all = all[min(skip, len(all)):]
	if top < 0 {
		top = len(all)
	}
	return all[:min(top, len(all))], nil
}

func (w *world) Subscriptions(
	ctx context.Context, topic *fsm.Descriptor, skip, top int,
) ([]*fsm.Descriptor, error) {
	all, err := w.List(ctx, fsm.Subscription, 0, -1)
	all = slices.DeleteFunc(all, func(d *fsm.Descriptor) bool { return d.Parent != topic.ID })
	all = all[min(skip, len(all)):]
	if top < 0 {
		top = len(all)
	}
	return all[:min(top, len(all))], err
}

// change replaces the description of the entity with that id.
func (w *world) change(id fsm.EntityID, f func(*fsm.Descriptor) error) (*fsm.Descriptor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return nil, w.failure
	}
	for name, d := range w.entities {
		if d.ID != id {
			continue
		}
		made := *d
		made.Rules = slices.Clone(d.Rules)
		made.UpdatedAt = fsm.Wall(now.Add(time.Hour).UnixMilli())
		if err := f(&made); err != nil {
			return nil, err
		}
		w.entities[name] = &made
		return &made, nil
	}
	return nil, fmt.Errorf("entity %d: %w", id, fsm.ErrNoEntity)
}

func (w *world) PutRule(
	_ context.Context, id fsm.EntityID, r fsm.Rule, replace bool,
) (*fsm.Descriptor, error) {
	return w.change(id, func(d *fsm.Descriptor) error {
		r.CreatedAt = fsm.Wall(now.UnixMilli())
		old := d.Rule(r.Name)
		switch {
		case old != nil && replace:
			r.Name, r.CreatedAt = old.Name, old.CreatedAt
			*old = r
		case old != nil:
			return &fsm.RefusedError{Refusal: fsm.EntityExists, Detail: "it already exists"}
		case replace:
			return fmt.Errorf("rule %q: %w", r.Name, fsm.ErrNoEntity)
		default:
			d.Rules = append(d.Rules, r)
		}
		return nil
	})
}

func (w *world) DropRule(_ context.Context, id fsm.EntityID, name string) (*fsm.Descriptor, error) {
	return w.change(id, func(d *fsm.Descriptor) error {
		if d.Rule(name) == nil {
			return fmt.Errorf("rule %q: %w", name, fsm.ErrNoEntity)
		}
		d.Rules = slices.DeleteFunc(d.Rules, func(r fsm.Rule) bool {
			return strings.EqualFold(r.Name, name)
		})
		return nil
	})
}

func (w *world) Create(_ context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return nil, w.failure
	}
	if _, ok := w.entities[strings.ToLower(d.Name)]; ok {
		return nil, &fsm.RefusedError{Refusal: fsm.EntityExists, Detail: "it already exists"}
	}
	w.last++
	d.ID, d.Version, d.Partitions = w.last, uint64(w.last), []fsm.PartitionID{1}
	d.CreatedAt, d.UpdatedAt = fsm.Wall(now.UnixMilli()), fsm.Wall(now.UnixMilli())
	if topic, _, ok := catalog.SplitSubscription(d.Name); ok && d.Kind == fsm.Subscription {
		d.Parent = w.entities[strings.ToLower(topic)].ID
	}
	for i := range d.Rules {
		d.Rules[i].CreatedAt = d.CreatedAt
	}
	w.entities[strings.ToLower(d.Name)] = &d
	return &d, nil
}

func (w *world) Update(_ context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	if f := w.meanwhile; f != nil {
		w.meanwhile = nil
		f()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return nil, w.failure
	}
	old, ok := w.entities[strings.ToLower(d.Name)]
	switch {
	case !ok:
		return nil, &fsm.RefusedError{Refusal: fsm.EntityNotFound, Detail: "it does not exist"}
	case d.Version != 0 && d.Version != old.Version:
		return nil, &fsm.RefusedError{Refusal: fsm.Stale, Detail: "it has changed meanwhile"}
	}
	d.Version++
	d.UpdatedAt = fsm.Wall(now.Add(time.Hour).UnixMilli())
	w.entities[strings.ToLower(d.Name)] = &d
	return &d, nil
}

func (w *world) Delete(_ context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	if _, ok := w.entities[strings.ToLower(name)]; !ok {
		return fmt.Errorf("entity %q: %w", name, fsm.ErrNoEntity)
	}
	id := w.entities[strings.ToLower(name)].ID
	maps.DeleteFunc(w.entities, func(_ string, d *fsm.Descriptor) bool {
		return d.ID == id || d.Parent == id
	})
	return nil
}

func (w *world) Counts(context.Context, *fsm.Descriptor) (fsm.EntityCounts, bool, error) {
	if w.incomplete {
		return fsm.EntityCounts{}, false, fsm.ErrUnavailable
	}
	return w.counts, true, nil
}

func (w *world) Cluster(context.Context) ClusterStatus {
	return ClusterStatus{
		Node:  "a",
		Nodes: []NodeStatus{{ID: "a", State: "alive", Address: "127.0.0.1:5672"}},
		Partitions: []PartitionStatus{
			{ID: 1, Leader: "a", Term: 2, Replicas: []fsm.NodeID{"a"}, Applied: 7},
		},
		Entities: []EntityStatus{{Name: "q", Shares: []fsm.PartitionID{1}}},
	}
}

func (w *world) Ready(context.Context) error { return w.ready }

func (w *world) Checks(context.Context) []Check {
	leaders := Check{Name: "leaders", Status: CheckOK, Readiness: true}
	if w.ready != nil {
		leaders.Status, leaders.Reason = CheckFailing, w.ready.Error()
	}
	return []Check{leaders, {Name: "disk-space", Status: CheckFailing, Reason: "disk is nearly full"}}
}

func (w *world) TransferLeader(_ context.Context, p fsm.PartitionID, to fsm.NodeID) error {
	if w.transfer != nil {
		return w.transfer
	}
	w.transfers = append(w.transfers, fmt.Sprintf("%d to %s", p, to))
	return nil
}

func (w *world) Wish(_ context.Context, verb string, node fsm.NodeID) error {
	if w.transfer != nil {
		return w.transfer
	}
	w.transfers = append(w.transfers, fmt.Sprintf("%s %s", verb, node))
	return nil
}

func (w *world) Upgrade(context.Context) UpgradeStatus {
	return UpgradeStatus{Version: "0.0-1", Knows: "0.1-1", Next: "0.1-1", Nodes: []NodeProgram{{ID: "n1", UUID: "a"}}}
}

func (w *world) Finalize(context.Context) (UpgradeStatus, error) {
	if w.transfer != nil {
		return UpgradeStatus{}, w.transfer
	}
	w.transfers = append(w.transfers, "finalize")
	return UpgradeStatus{Version: "0.1-1", Knows: "0.1-1"}, nil
}

func (w *world) Rebalance(_ context.Context, node fsm.NodeID) (int, []string, error) {
	if w.transfer != nil {
		return 0, nil, w.transfer
	}
	w.transfers = append(w.transfers, fmt.Sprintf("rebalance %s", node))
	return 2, []string{"partition 3 was not handed to b"}, nil
}

func (w *world) Rehome(_ context.Context, entity string, to fsm.PartitionID, dryRun bool) ([]ShareMove, error) {
	if w.transfer != nil {
		return nil, w.transfer
	}
	w.transfers = append(w.transfers, fmt.Sprintf("rehome %s %d %v", entity, to, dryRun))
	return []ShareMove{{Share: 0, From: 2, To: max(to, 1)}}, nil
}

// house is an API on a world, and a way to talk to it.
type house struct {
	*world
	api     *API
	handler http.Handler
	log     strings.Builder
}

func newHouse(t testing.TB, change ...func(*Config)) *house {
	t.Helper()
	h := &house{world: &world{entities: map[string]*fsm.Descriptor{}}}
	policies, err := auth.New(auth.DefaultExpiryTolerance)
	if err != nil {
		t.Fatal(err)
	}
	policies.KnowHosts("host", "h") // the names by which the requests of these tests call the broker
	if err := errors.Join(
		policies.Replace("", auth.Policy{Name: root, Primary: rootKey, Rights: auth.All},
			auth.Policy{Name: "sender", Primary: "k", Rights: auth.Send},
			auth.Policy{Name: "listener", Primary: "k", Rights: auth.Listen}),
		policies.Replace("orders", auth.Policy{Name: "owner", Primary: "k", Rights: auth.All},
			auth.Policy{Name: "reader", Primary: "k", Rights: auth.Listen}),
	); err != nil {
		t.Fatal(err)
	}
	cfg := Defaults()
	cfg.Namespace = "sample"
	cfg.CreatedAt = now
	for _, f := range change {
		f(&cfg)
	}
	log := hclog.New(&hclog.LoggerOptions{Output: &h.log, Level: hclog.Debug})
	h.api, err = New(cfg, Deps{
		Refusals: refusal.New(7, log, func() time.Time { return now }), Entities: h, Topics: h, Cluster: h, Policies: policies, Metrics: prometheus.NewRegistry(),
		Now: func() time.Time { return now },
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	h.handler = h.api.Management()
	return h
}

func token(policy, key, audience string) string {
	return auth.NewToken(audience, policy, key, now.Add(time.Hour))
}

// do sends a request with the root key's token; headers are pairs, an empty value removes one.
func (h *house) do(t testing.TB, method, target, body string, headers ...string) (int, string) {
	t.Helper()
	response := h.response(t, method, target, body, headers...)
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (h *house) response(
	t testing.TB, method, target, body string, headers ...string,
) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "https://host.test"+target, strings.NewReader(body))
	r.Header.Set("Authorization", token(root, rootKey, "https://host.test/"))
	if method == http.MethodPut {
		r.Header.Set("Content-Type", "application/atom+xml;type=entry;charset=utf-8")
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Del(headers[i]); headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Result()
}

// queueBody is the smallest entry around the elements of a queue.
func queueBody(elements string) string { return entryBody("QueueDescription", elements) }

// entryBody is the smallest entry around the elements of a description.
func entryBody(element, elements string) string {
	return `<entry xmlns="` + atomSpace + `"><content type="application/xml">` +
		`<` + element + ` xmlns="` + connectSpace + `">` + elements +
		`</` + element + `></content></entry>`
}

// create makes a queue or fails the test.
func (h *house) create(t testing.TB, name, elements string) *fsm.Descriptor {
	t.Helper()
	if status, text := h.do(t, "PUT", "/"+name, queueBody(elements)); status != http.StatusCreated {
		t.Fatalf("create %s: %d %s", name, status, text)
	}
	return h.entities[strings.ToLower(name)]
}

// property cuts the text of an element out of an answer; "absent" if it is not there.
func property(text, name string) string {
	_, rest, ok := strings.Cut(text, "<"+name+">")
	if !ok {
		return "absent"
	}
	value, _, _ := strings.Cut(rest, "</"+name+">")
	return value
}
