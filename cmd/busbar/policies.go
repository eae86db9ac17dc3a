package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/rest"
)

const (
	// keysWait bounds how long a change of an entity's keys waits until this node honours it.
	keysWait = 2 * time.Second
	// keysFirst bounds how long a node that starts waits for the keys of entities: without its catalog it serves the keys of
	// the namespace. keysLook is the pause before it asks again.
	keysFirst = 10 * time.Second
	keysLook  = 20 * time.Millisecond
)

// policyKeeper lets the keys of queues and topics open them on this node. It follows the catalog, so a
// key that is changed through any node counts on all of them as soon as they hear of it.
type policyKeeper struct {
	policies *auth.Policies
	log      hclog.Logger

	mu        sync.Mutex
	namespace []auth.Policy // as configured
	view      *catalog.View // whose keys count now, nil before the first
	loaded    uint64        // version of the catalog whose keys count now
	changed   chan struct{} // closed when loaded grows
}

func newPolicyKeeper(cfg Config, log hclog.Logger) (*policyKeeper, error) {
	policies, err := newPolicies(cfg)
	if err != nil {
		return nil, err
	}
	namespace, err := namespacePolicies(cfg.Policies)
	return &policyKeeper{namespace: namespace, policies: policies, log: log,
		changed: make(chan struct{})}, err
}

// follow loads what the catalog says whenever it changes, until ctx ends.
func (k *policyKeeper) follow(ctx context.Context, host *partition.Host, d *partition.Directory) {
	for {
		changed := host.CatalogChanged()
		if v := d.View(); v != nil {
			k.load(v)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// load puts together the namespace's policies and those of all entities. A rule that the management
// API would refuse opens nothing.
func (k *policyKeeper) load(v *catalog.View) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v.Version() != k.loaded {
		k.loadLocked(v)
	}
}

// replace has other policies of the namespace count from now on.
func (k *policyKeeper) replace(namespace []auth.Policy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.namespace = namespace
	if k.view != nil {
		k.loadLocked(k.view)
		return
	}
	if err := k.policies.Replace("", namespace...); err != nil {
		k.log.Error("policies of the namespace", "error", err)
	}
}

// configured returns the policies of the namespace that count now.
func (k *policyKeeper) configured() []auth.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.namespace
}

func (k *policyKeeper) loadLocked(v *catalog.View) {
	all := map[string][]auth.Policy{"": k.namespace}
	for _, kind := range []fsm.EntityKind{fsm.Queue, fsm.Topic} {
		for _, d := range v.List(kind, 0, -1) {
			for _, p := range rest.PoliciesOf(d) {
				if err := p.Validate(); err != nil {
					k.log.Error("policy of an entity", "entity", d.Name, "error", err)
					continue
				}
				all[d.Name] = append(all[d.Name], p)
			}
		}
	}
	if err := k.policies.ReplaceAll(all); err != nil {
		k.log.Error("policies of entities", "error", err)
	}
	k.view, k.loaded = v, v.Version()
	close(k.changed)
	k.changed = make(chan struct{})
}

// await returns when the keys of a version of the catalog count here, or after keysWait.
func (k *policyKeeper) await(ctx context.Context, version uint64) {
	ctx, cancel := context.WithTimeout(ctx, keysWait)
	defer cancel()
	for {
		k.mu.Lock()
		loaded, changed := k.loaded, k.changed
		k.mu.Unlock()
		if loaded >= version {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// keyedEntities is the directory, for the management API. A client that sets keys through this node can use them
// at this node as soon as it has its answer.
type keyedEntities struct {
	*partition.Directory
	keys *policyKeeper
}

// Create adds an entity.
func (e keyedEntities) Create(ctx context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	made, err := e.Directory.Create(ctx, d)
	e.await(ctx, made, err)
	return made, err
}

// Update changes an entity.
func (e keyedEntities) Update(ctx context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	made, err := e.Directory.Update(ctx, d)
	e.await(ctx, made, err)
	return made, err
}

func (e keyedEntities) await(ctx context.Context, d *fsm.Descriptor, err error) {
	if err == nil && d != nil && len(d.AuthRules) > 0 {
		e.keys.await(ctx, d.Version)
	}
}

// openPolicies begins to follow the catalog, and lets no client in before the keys of entities are those of now. A client
// whose key is not known yet would hear that it is wrong, and not try again.
func (n *node) openPolicies(ctx context.Context) error {
	done := make(chan struct{})
	go func() { defer close(done); n.keys.follow(n.background, n.host, n.directory) }()
	n.onClose(func(context.Context) error { n.cancel(); <-done; return nil })
	wait, cancel := context.WithTimeout(ctx, keysFirst)
	defer cancel()
	for {
		_, err := n.directory.Some(wait, nil) // the catalog here catches up
		if err == nil {
			n.keys.load(n.directory.View())
			return nil
		}
		select {
		case <-time.After(keysLook):
		case <-wait.Done():
			n.log.Warn("clients are let in before the catalog tells the keys of entities: one of them may be refused", "error", err)
			return nil
		}
	}
}

// newPolicies turns the configured policies into those that tokens are checked against.
func newPolicies(cfg Config) (*auth.Policies, error) {
	policies, err := auth.New(cfg.ClockSkew)
	if err != nil {
		return nil, err
	}
	policies.KnowHosts(cfg.Namespace, cfg.Advertise, cfg.NodeName)
	all, err := namespacePolicies(cfg.Policies)
	if err != nil {
		return nil, err
	}
	return policies, policies.Replace("", all...)
}

func namespacePolicies(from []policy) ([]auth.Policy, error) {
	var all []auth.Policy
	for _, p := range from {
		rights, err := parseRights(p.Rights)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		all = append(all, auth.Policy{Name: p.Name, Primary: auth.Secret(p.Primary),
			Secondary: auth.Secret(p.Secondary), Rights: rights})
	}
	return all, nil
}

func parseRights(names list) (auth.Right, error) {
	var rights auth.Right
	for _, name := range names {
		switch strings.ToLower(name) {
		case "send":
			rights |= auth.Send
		case "listen":
			rights |= auth.Listen
		case "manage":
			rights |= auth.All // Manage contains the others
		default:
			return 0, fmt.Errorf("right %q is unknown, want Send, Listen or Manage", name)
		}
	}
	return rights, nil
}
