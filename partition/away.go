package partition

import (
	"context"
	"errors"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

// away holds the calls of this node to leaders on other nodes that have not been answered. A call to a node
// that is paused or cut off ends by itself only when the mesh has given the connection up. Each call is
// ended as soon as another node is known to lead, and the caller asks that one, with the same request id.
type away struct {
	h *Host

	mu    sync.Mutex
	calls map[fsm.PartitionID]*awayCall // the latest one to each partition
}

// awayCall is one call under way, in the list of those to its partition.
type awayCall struct {
	partition    fsm.PartitionID
	older, newer *awayCall

	node   fsm.NodeID // whom it asks
	before fsm.NodeID // who was believed to lead when node was chosen, empty for nobody
	end    func(cause error)
}

// errMoved is the cause of the end of a call to a node that leads no more.
var errMoved = errors.New("another node leads now")

// run ends calls as leaders become known, until the host closes.
func (a *away) run() {
	for {
		changed := a.h.newsOfLeaders()
		a.look()
		select {
		case <-a.h.stop:
			return
		case <-changed.host:
		case <-changed.locator:
		}
	}
}

// look ends the calls whose partitions are led by another node than theirs by now.
func (a *away) look() {
	var moved []*awayCall
	a.mu.Lock()
	for p, c := range a.calls { // order-free: each ends for itself
		leader := a.h.believed(p)
		for ; c != nil; c = c.older {
			if c.moved(leader) {
				moved = append(moved, c)
			}
		}
	}
	a.mu.Unlock()
	for _, c := range moved {
		c.end(errMoved)
	}
}

// moved reports whether a leader was learnt of since node was chosen, and is another one. A node that was
// chosen by the hint of an answer may lead although it is not believed to here.
func (c *awayCall) moved(leader fsm.NodeID) bool {
	return leader != "" && leader != c.node && leader != c.before
}

// begin notes a call to a node, chosen after the news were taken and while before was believed to lead. The
// context that it returns ends with the cause errMoved when another node is known to lead; over must be called
// when the call is over.
func (a *away) begin(ctx context.Context, p fsm.PartitionID, node, before fsm.NodeID, n news) (
	context.Context, *awayCall) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, a.note(p, node, before, n, cancel)
}

// note is begin for a call without a context. end is called with errMoved when another node is known to lead, and by over without a cause.
func (a *away) note(p fsm.PartitionID, node, before fsm.NodeID, n news, end func(cause error)) *awayCall {
	c := &awayCall{partition: p, node: node, before: before, end: end}
	a.mu.Lock()
	if a.calls == nil {
		a.calls = map[fsm.PartitionID]*awayCall{}
	}
	if c.older = a.calls[p]; c.older != nil {
		c.older.newer = c
	}
	a.calls[p] = c
	a.mu.Unlock()
	if n.came() && c.moved(a.h.believed(p)) { // between the choice and now
		end(errMoved)
	}
	return c
}

// over forgets a call and ends its context.
func (a *away) over(c *awayCall) {
	a.mu.Lock()
	switch {
	case c.newer != nil:
		c.newer.older = c.older
	case c.older != nil:
		a.calls[c.partition] = c.older
	default:
		delete(a.calls, c.partition)
	}
	if c.older != nil {
		c.older.newer = c.newer
	}
	a.mu.Unlock()
	c.end(nil)
}

// believed returns who leads a partition as far as this node knows, empty for nobody.
func (h *Host) believed(p fsm.PartitionID) fsm.NodeID {
	if id, ok := h.leader(p); ok {
		return id
	}
	id, _ := h.deps.Locator.Leader(p)
	return id
}

// news are the channels that close when a leader becomes known.
type news struct{ host, locator <-chan struct{} }

// came reports whether there were news since they were taken.
func (n news) came() bool {
	select {
	case <-n.host:
	case <-n.locator:
	default:
		return false
	}
	return true
}

// newsOfLeaders returns the channels of the next news. Take them before looking, then nothing is missed.
func (h *Host) newsOfLeaders() news {
	n := news{host: h.Changed()}
	if l, ok := h.deps.Locator.(interface{ Changed() <-chan struct{} }); ok {
		n.locator = l.Changed()
	}
	return n
}
