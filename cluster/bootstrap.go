package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// BootstrapStore keeps small files that are written once and never changed; storage has one.
type BootstrapStore interface {
	// Read returns what was written under name; the error wraps fs.ErrNotExist if nothing was.
	Read(name string) ([]byte, error)
	// WriteOnce makes data durable under name before it returns. A name that was written with other data keeps that:
	// the call is an error that wraps fs.ErrExist.
	WriteOnce(name string, data []byte) error
}

// The names that Bootstrap uses in its store. The first is what this node has accepted, the second what
// every node of the list has accepted.
const (
	acceptedName  = "bootstrap-accepted"
	confirmedName = "bootstrap-confirmed"
)

const (
	maxBootstrapNodes = 32 // first voters of the catalog: a list fits one small frame

	// reservation is how long a node that agreed with one proposer refuses the others. A node that has just
	// started refuses all proposers for as long, because it may have forgotten one. A proposer
	// whose questions took longer than half of it begins again.
	reservation = 2 * time.Second
	// bootstrapPause is between two rounds, and bounds one question.
	bootstrapPause = 500 * time.Millisecond
)

// Bootstrap fixes the first member list of the catalog, once for the life of a cluster (A20).
//
// A node accepts a list by writing it, once. A list is confirmed when every node on it has accepted
// it, and only a confirmed list is ever returned. Two confirmed lists that share a node would be the
// same list, because that node wrote one. So no two nodes ever start different clusters, whatever
// gossip told them; they can only fail to start one. (Two lists without a common node need two times
// BootstrapExpect fresh nodes that do not see each other; those are two clusters, as if meant.)
//
// That they do not fail is what the questions before are for. A proposer, the lowest id of
// BootstrapExpect nodes that it sees, first asks each of them. A node agrees if it has accepted
// nothing, sees no lower id, and has agreed with nobody else for the time T of a reservation; it is
// the first to accept a list only while it has agreed to it, in that round. For two lists to block
// each other, nodes X and Y must be on both, X have accepted list 1 and Y list 2. Then X agreed to
// list 2 at least T before it agreed to list 1, else it would have shown list 1 instead; likewise Y
// agreed to list 1 at least T before list 2. Each proposer had both its answers within T/2 (see
// propose). Those four cannot hold together. A node that finds a list accepted somewhere offers that
// list and no other. Nobody has to agree to it again, so a proposer may die at any point.
type Bootstrap struct {
	self    fsm.NodeID
	expect  int
	call    func(ctx context.Context, to fsm.NodeID, kind uint8, request []byte) ([]byte, error)
	members func() (alive []fsm.NodeID, changed <-chan struct{})
	store   BootstrapStore
	log     hclog.Logger

	mu sync.Mutex
	// agreed is the round and list of the last proposer that was told yes; until then, no other is.
	agreed agreement
	until  time.Time
}

type agreement struct {
	round uint64
	list  string // as appendList writes it
}

// KindBootstrap is the call of Bootstrap.
const KindBootstrap uint8 = 64

// Founded returns a digest of the list of first members that a store has confirmed, zero if there is none.
func Founded(store BootstrapStore) Digest {
	data, err := store.Read(confirmedName)
	if err != nil {
		return Digest{}
	}
	sum := sha256.Sum256(data)
	return Digest(sum[:len(Digest{})])
}

// NewBootstrap registers its call with mesh, so it must come before Mesh.Start.
func NewBootstrap(cfg Config, mesh *Mesh, gossip *Gossip, store BootstrapStore, log hclog.Logger) *Bootstrap {
	b := &Bootstrap{
		self: cfg.Node, expect: cfg.BootstrapExpect, call: mesh.Call, members: gossip.living,
		store: store, log: log.Named("bootstrap"),
	}
	if cfg.BootstrapExpect != 1 { // a node alone has promised nothing to anyone
		b.until = time.Now().Add(reservation)
	}
	mesh.Handle(KindBootstrap, b.serve)
	return b
}

// Alive returns the nodes that are alive, in order of their ids.
func (g *Gossip) Alive() []fsm.NodeID {
	alive, _ := g.living()
	return alive
}

// living returns the ids of the nodes that are alive, sorted, and what Changed does.
func (g *Gossip) living() (alive []fsm.NodeID, changed <-chan struct{}) {
	changed = g.Changed()
	for _, m := range g.Members() {
		if m.State == MemberAlive {
			alive = append(alive, m.ID)
		}
	}
	return alive, changed
}

// Run returns the first members of the catalog, sorted, and whether this node is one of them. If it is,
// the caller bootstraps the catalog with exactly this list, unless it has done so before. A node that
// is not on the list joins later, through the catalog. Run waits for as long as there is no confirmed list
// to be had, until ctx ends; with Config.BootstrapExpect 0 it never proposes one.
func (b *Bootstrap) Run(ctx context.Context) (list []fsm.NodeID, member bool, err error) {
	for {
		alive, changed := b.members()
		list, err := b.round(ctx, alive)
		if err != nil {
			return nil, false, fmt.Errorf("bootstrap: %w", err)
		}
		if list != nil {
			return list, slices.Contains(list, b.self), nil
		}
		pause := time.NewTimer(bootstrapPause)
		select {
		case <-changed:
			pause.Stop()
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, false, fmt.Errorf("bootstrap: %w", context.Cause(ctx))
		}
	}
}

// round tries once. No list and no error means to try again; an error is one of the store.
func (b *Bootstrap) round(ctx context.Context, alive []fsm.NodeID) ([]fsm.NodeID, error) {
	if list, err := b.read(confirmedName); list != nil || err != nil {
		return list, err
	}
	accepted, err := b.read(acceptedName)
	if err != nil {
		return nil, err
	}
	// The lists of others come first: a confirmed one ends the search, and an accepted one gets help.
	for _, id := range alive {
		if id == b.self {
			continue
		}
		a, err := b.ask(ctx, id, question{op: opTell})
		if err != nil {
			continue
		}
		if a.confirmed {
			return b.confirm(a.list)
		}
		if accepted == nil && slices.Contains(a.list, b.self) {
			accepted = a.list
		}
	}
	if accepted != nil {
		return b.offer(ctx, question{op: opAccept, backed: true, list: accepted})
	}
	if b.expect == 0 || len(alive) < b.expect || alive[0] != b.self {
		return nil, nil
	}
	return b.propose(ctx, alive[:b.expect])
}

// propose asks every node of a new list and, if all agree in time, offers it.
func (b *Bootstrap) propose(ctx context.Context, list []fsm.NodeID) ([]fsm.NodeID, error) {
	begun := time.Now()
	round := uint64(begun.UnixNano())
	for _, id := range list {
		a, err := b.ask(ctx, id, question{op: opAgree, round: round, list: list})
		if err != nil || !a.yes {
			b.log.Debug("not agreed yet", "peer", id, "error", err)
			return nil, nil
		}
	}
	if time.Since(begun) > reservation/2 {
		return nil, nil
	}
	return b.offer(ctx, question{op: opAccept, round: round, list: list})
}

// offer has every node of a list accept it, this one included. Once all have, it is confirmed.
func (b *Bootstrap) offer(ctx context.Context, q question) ([]fsm.NodeID, error) {
	for _, id := range q.list {
		a, err := b.ask(ctx, id, q)
		switch {
		case err != nil:
			b.log.Debug("not accepted yet", "peer", id, "error", err)
			return nil, nil
		case a.confirmed:
			return b.confirm(a.list)
		case !a.yes && a.list != nil:
			b.log.Error("a node has accepted another list; if no list is confirmed soon, stop all new nodes "+
				"and clear their data directories", "node", id, "ours", q.list, "theirs", a.list)
			return nil, nil
		case !a.yes:
			return nil, nil
		}
	}
	return b.confirm(q.list)
}

// confirm makes a list that all have accepted durable as such.
func (b *Bootstrap) confirm(list []fsm.NodeID) ([]fsm.NodeID, error) {
	err := b.store.WriteOnce(confirmedName, appendList(nil, list))
	if err == nil {
		b.log.Info("first members confirmed", "nodes", list)
		return list, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("write confirmed list: %w", err)
	}
	return b.read(confirmedName)
}

// read returns nil if nothing was written. A file that does not parse stops the node: guessing here
// could found a second cluster.
func (b *Bootstrap) read(name string) ([]fsm.NodeID, error) {
	data, err := b.store.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	r := gossipReader{b: data}
	list := r.list()
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return list, nil
}

// ask puts one question to a node, which may be this one.
func (b *Bootstrap) ask(ctx context.Context, to fsm.NodeID, q question) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, bootstrapPause)
	defer cancel()
	text, err := b.call(ctx, to, KindBootstrap, appendQuestion(nil, q))
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(text)
}

// serve answers the questions of others, and our own.
func (b *Bootstrap) serve(_ context.Context, from fsm.NodeID, request []byte) ([]byte, error) {
	q, err := parseQuestion(request)
	if err != nil {
		return nil, err
	}
	// One at a time: what is looked at must not change until it is acted on. The write below is under
	// mu on purpose; nothing but these questions waits for it.
	b.mu.Lock()
	defer b.mu.Unlock()
	a, err := b.known()
	if err != nil || q.op == opTell || a.confirmed {
		return appendAnswer(nil, a), err
	}
	wanted := agreement{q.round, string(appendList(nil, q.list))}
	switch {
	case !slices.Contains(q.list, b.self):
		// Not for us to say yes to.
	case a.list != nil:
		a.yes = slices.Equal(a.list, q.list)
	case q.op == opAgree:
		if a.yes = b.mayAgree(from, q.list, wanted); a.yes {
			b.agreed, b.until = wanted, time.Now().Add(reservation)
		}
	case q.backed, b.agreed == wanted && time.Now().Before(b.until):
		a.yes, err = b.accept(q.list)
	}
	return appendAnswer(nil, a), err
}

// mayAgree says whether a new list may be agreed to now.
func (b *Bootstrap) mayAgree(from fsm.NodeID, list []fsm.NodeID, wanted agreement) bool {
	if from != list[0] {
		return false // the lowest proposes
	}
	if alive, _ := b.members(); len(alive) > 0 && alive[0] < from {
		return false // there is a lower one
	}
	return b.agreed.list == wanted.list || !time.Now().Before(b.until)
}

func (b *Bootstrap) accept(list []fsm.NodeID) (bool, error) {
	if err := b.store.WriteOnce(acceptedName, appendList(nil, list)); err != nil {
		return false, fmt.Errorf("write accepted list: %w", err)
	}
	return true, nil
}

// known is what this node has written.
func (b *Bootstrap) known() (answer, error) {
	list, err := b.read(confirmedName)
	if list != nil || err != nil {
		return answer{confirmed: list != nil, list: list}, err
	}
	list, err = b.read(acceptedName)
	return answer{list: list}, err
}
