package simulation

import (
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// watchEvery is the time between two looks at all replicas.
const watchEvery = time.Second

// watch looks at all replicas while the clients work. A partition has one home (I28), and no node that was forgotten
// belongs to a group (I30).
func (w *world) watch() {
	l := &lookout{w: w, seen: map[home]uint64{}}
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-t.C:
			l.look()
		}
	}
}

// home is a leadership on one node.
type home struct {
	p    fsm.PartitionID
	at   *node
	term uint64
}

// lookout remembers what it saw last.
type lookout struct {
	w    *world
	seen map[home]uint64 // what each leadership had committed
}

func (l *lookout) look() {
	v, next := l.w.view(), map[home]uint64{}
	for p := range l.w.cfg.Partitions + 1 {
		l.one(fsm.PartitionID(p), v, next)
	}
	l.seen = next
}

// one looks at one partition. A leadership that commits has the word of a majority.
func (l *lookout) one(p fsm.PartitionID, v *catalog.View, next map[home]uint64) {
	var commits *home
	terms := map[uint64]*node{}
	for _, m := range l.w.machines() {
		n := m.node
		if n == nil {
			continue
		}
		r := n.host.Replica(p)
		if r == nil || !r.Leading() {
			continue
		}
		st := r.Status()
		if st.Leader != n.id {
			continue
		}
		h := home{p, n, st.Term}
		if other := terms[st.Term]; other != nil {
			l.w.spoil("I28", fmt.Errorf("%s and %s both lead partition %d in term %d", other.id, n.id, p, st.Term))
		}
		terms[st.Term] = n
		next[h] = st.Committed
		if was, before := l.seen[h]; !before || st.Committed <= was {
			continue
		}
		if commits != nil {
			l.w.spoil("I28", fmt.Errorf("partition %d has two homes: %s commits in term %d, %s in term %d", p,
				commits.at.id, commits.term, n.id, st.Term))
		}
		commits = &h
		l.members(&st, v)
	}
}

// members looks for forgotten nodes in a group of messages. A node is forgotten when it has left these groups; the
// catalog's leader takes it out of the catalog's group afterwards.
func (l *lookout) members(leader *replica.Status, v *catalog.View) {
	if leader.Partition == fsm.CatalogPartition || v == nil {
		return
	}
	for _, n := range append(leader.Voters, leader.Nonvoters...) {
		if v.IsRemoved(n) {
			l.w.spoil("I30", fmt.Errorf("%s, which was forgotten, belongs to partition %d", n, leader.Partition))
		}
	}
}
