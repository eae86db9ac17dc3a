package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// grow starts another node, which joins.
func (b *brokers) grow(id fsm.NodeID) {
	b.t.Helper()
	b.ids = append(b.ids, id)
	b.cfg = func(c *Config) { c.Incarnation = fsm.Incarnation(500 + len(b.ids)) }
	b.join(id, nil)
}

// wish sets what is wanted of a node, as soon as the cluster knows such changes.
func (b *brokers) wish(via, id fsm.NodeID, w catalog.Wish) {
	b.t.Helper()
	b.until("a wish is taken", func() string {
		if err := b.all[via].dir.Wish(b.t.Context(), id, w); err != nil {
			return err.Error()
		}
		return ""
	})
}

// until waits until a question has the answer "".
func (b *brokers) until(what string, f func() string) {
	b.t.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	why := f()
	for ; why != "" && time.Now().Before(deadline); why = f() {
		time.Sleep(100 * time.Millisecond)
	}
	if why != "" {
		b.t.Fatalf("%s: not after ten minutes: %s", what, why)
	}
}

// spread reports how many replicas and preferred leaders each node has in the catalog.
func (b *brokers) spread(via fsm.NodeID) (load, leads map[fsm.NodeID]int) {
	load, leads = map[fsm.NodeID]int{}, map[fsm.NodeID]int{}
	for _, g := range b.all[via].dir.View().Groups() {
		for _, n := range g.Members {
			load[n]++
		}
		leads[g.Members[0]]++
	}
	return load, leads
}

// level reports why replicas and leaders are not spread over nodes as evenly as can be, and carried out.
func (b *brokers) level(nodes ...fsm.NodeID) string {
	load, leads := b.spread(nodes[0])
	for _, a := range nodes {
		for _, c := range nodes {
			if load[a] > load[c]+1 || leads[a] > leads[c]+1 {
				return fmt.Sprintf("replicas %v, leaders %v", load, leads)
			}
		}
	}
	return b.unfinished(nodes...)
}

// unfinished reports a partition whose voters are not its members, or that another node holds or its own members do not
// hold.
func (b *brokers) unfinished(via ...fsm.NodeID) string {
	for _, g := range b.all[via[0]].dir.View().Groups() {
		want := slices.Clone(g.Members)
		slices.Sort(want)
		var names []string
		for _, n := range want {
			names = append(names, string(n))
		}
		if got := b.voters(g.ID); got != strings.Join(names, " ") {
			return fmt.Sprintf("partition %d has the voters %q and wants %v", g.ID, got, want)
		}
		for id, n := range b.all {
			if holds := n.host.Replica(g.ID) != nil; holds != slices.Contains(want, id) {
				return fmt.Sprintf("node %s holds partition %d: %v, wanted on %v", id, g.ID, holds, want)
			}
		}
	}
	return ""
}

// traffic has a queue of its own. It sends and receives through every node until it is stopped, and then reports what was sent and what was
// received.
type traffic struct {
	b         *brokers
	d         *fsm.Descriptor
	stop      chan struct{}
	done      chan struct{}
	sent, got map[fsm.SequenceNumber]int
	longest   time.Duration
	bound     time.Duration // of the longest pause
}

func (b *brokers) traffic(via ...fsm.NodeID) *traffic {
	return b.trafficOf(b.createQueue(b.t.Context(), via[0], queue("traffic", true)), mostPause, via...)
}

// trafficOf has traffic in a queue, through these nodes, of which no request may take longer than a bound.
func (b *brokers) trafficOf(d *fsm.Descriptor, bound time.Duration, via ...fsm.NodeID) *traffic {
	w := &traffic{b: b, d: d, stop: make(chan struct{}), done: make(chan struct{}), bound: bound,
		sent: map[fsm.SequenceNumber]int{}, got: map[fsm.SequenceNumber]int{}}
	var routers []*Router
	for _, id := range via {
		routers = append(routers, b.all[id].r)
	}
	go w.run(routers)
	return w
}

func (w *traffic) run(routers []*Router) {
	defer close(w.done)
	for n := 1; ; n++ {
		select {
		case <-w.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		share := n % len(w.d.Partitions)
		k := fsm.Key{Entity: w.d.ID, By: fsm.ByShare, Share: uint16(share)}
		r := routers[n%len(routers)]
		ctx, cancel := context.WithTimeout(w.b.t.Context(), 30*time.Second)
		began := time.Now()
		o, err := r.Propose(ctx, reqOf(7, 1, 2*n), k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("b")}}})
		if err != nil || len(o.Numbers) != 1 {
			w.b.t.Errorf("send %d: %+v, %v", n, o, err)
		} else {
			w.sent[o.Numbers[0]]++
		}
		o, err = r.Propose(ctx, reqOf(7, 2, 2*n+1), k, &fsm.Lock{Max: 1, MaxBytes: 1 << 20, Delete: true})
		if err != nil || o.Refusal != fsm.None {
			w.b.t.Errorf("receive %d: %+v, %v", n, o, err)
		}
		for _, m := range o.Locked {
			w.got[m.Seq]++
		}
		w.longest = max(w.longest, time.Since(began))
		cancel()
	}
}

// end stops the traffic and judges it: each message was received once.
func (w *traffic) end() {
	w.b.t.Helper()
	close(w.stop)
	<-w.done
	lost, double := 0, 0
	for n, times := range w.sent {
		if w.got[n] == 0 {
			lost++
		}
		if times > 1 || w.got[n] > 1 {
			double++
		}
	}
	if lost+double > 0 {
		w.b.t.Errorf("of %d messages %d were not received, %d were stored or received twice", len(w.sent), lost, double)
	}
	if len(w.sent) == 0 || w.longest > w.bound {
		w.b.t.Errorf("%d messages, the longest pause was %v", len(w.sent), w.longest)
	}
	w.b.t.Logf("%d messages, the longest pause was %v", len(w.sent), w.longest)
}

// S-315, S-318, S-320: a fourth and a fifth node take their share while messages are sent and received, one replica
// after the other.
func TestNewNodesTakeTheirShareUnderLoad(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		d := b.createQueue(t.Context(), "n1", queue("orders", true))
		before := slices.Clone(d.Partitions)
		w := b.traffic("n1", "n2", "n3")
		b.grow("n4")
		b.grow("n5")
		nodes := []fsm.NodeID{"n1", "n2", "n3", "n4", "n5"}
		b.until("five nodes have their share", func() string { return b.level(nodes...) })
		w.end()
		load, _ := b.spread("n1")
		if load["n4"] < 2 || load["n5"] < 2 {
			t.Errorf("replicas: %v", load)
		}
		if now, err := b.all["n5"].dir.Get(t.Context(), "orders"); err != nil || !slices.Equal(now.Partitions, before) {
			t.Errorf("shares %v, before %v, %v", now, before, err)
		}
		version := b.all["n1"].dir.View().Version()
		time.Sleep(5 * time.Minute)
		if v := b.all["n1"].dir.View().Version(); v != version {
			t.Errorf("a balanced cluster changed its catalog %d times", v-version)
		}
	})
}

// drained reports why a node still leads or holds something.
func (b *brokers) drained(id fsm.NodeID) string {
	for _, r := range b.all[id].host.list() {
		if r.ID() != fsm.CatalogPartition || r.Leading() {
			return fmt.Sprintf("%s holds partition %d, leading %v", id, r.ID(), r.Leading())
		}
	}
	return ""
}

func (b *brokers) leadsNothing(id fsm.NodeID) string {
	for _, r := range b.all[id].host.list() {
		if r.Leading() {
			return fmt.Sprintf("%s leads partition %d", id, r.ID())
		}
	}
	return ""
}

// A node that drains ends without a leader and a replica if others are free, and gets its share again after that.
func TestADrainedNodeIsEmpty(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		b.grow("n4")
		b.until("four nodes have their share", func() string { return b.level("n1", "n2", "n3", "n4") })
		w := b.traffic("n2", "n3", "n4")
		b.wish("n2", "n1", catalog.Drain)
		b.until("n1 is empty", func() string { return b.drained("n1") + b.unfinished("n2") })
		b.until("the others are level", func() string { return b.level("n2", "n3", "n4") })
		w.end()
		b.wantActive("n1", d, sent) // it still serves clients
		b.wish("n1", "n1", catalog.Serve)
		b.until("n1 has its share again", func() string { return b.level("n1", "n2", "n3", "n4") })
	})
}

// S-318: without a free node, a node that drains keeps its replicas, and leads nothing.
func TestADrainedNodeWithoutAFreeOneLeadsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		b.wish("n1", "n2", catalog.Drain)
		b.until("n2 leads nothing", func() string { return b.leadsNothing("n2") })
		load, _ := b.spread("n1")
		if load["n2"] != b.partitions {
			t.Errorf("replicas: %v", load)
		}
		for range 600 { // nor does it lead again
			time.Sleep(time.Second)
			if why := b.leadsNothing("n2"); why != "" {
				t.Fatal(why)
			}
		}
		_, leads := b.spread("n1")
		if leads["n2"] != 0 || leads["n1"]+leads["n3"] != b.partitions {
			t.Errorf("preferred leaders: %v", leads)
		}
		b.wantActive("n1", d, sent)
	})
}

// A node that is removed ends without anything, leaves the catalog's group, and is not taken in again.
func TestARemovedNodeIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		b.grow("n4")
		b.until("four nodes have their share", func() string { return b.level("n1", "n2", "n3", "n4") })
		b.wish("n4", "n1", catalog.Remove)
		b.until("n1 is not known any more", func() string {
			if _, known := b.all["n4"].dir.View().Node("n1"); known {
				return "it is"
			}
			return ""
		})
		// Its operator may switch it off now, so the catalog must not need its vote.
		if st := b.all["n4"].host.Replica(fsm.CatalogPartition).Status(); slices.Contains(st.Voters, "n1") {
			t.Errorf("n1 was forgotten and votes in the catalog: %v", st.Voters)
		}
		b.until("n1 is forgotten", func() string { return b.forgotten("n4", "n1") })
		b.kill("n1")
		b.whole("n2 n3 n4")
		b.wantActive("n2", d, sent)
		b.revive("n1")
		time.Sleep(5 * time.Minute)
		b.whole("n2 n3 n4")
	})
}

func (b *brokers) forgotten(via, id fsm.NodeID) string {
	if n, known := b.all[via].dir.View().Node(id); known {
		return fmt.Sprintf("node %+v", n)
	}
	if members := b.voters(fsm.CatalogPartition); members == "" || strings.Contains(members, string(id)) {
		return "the catalog's members: " + members
	}
	return b.unfinished(via)
}

// A node that never comes back is forgotten at once: others take its places, or the places are given up.
func TestANodeThatIsGoneIsForgotten(t *testing.T) {
	for _, spare := range []bool{true, false} {
		t.Run(fmt.Sprintf("a node is free %v", spare), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, d, sent := loaded(t)
				defer b.close()
				if spare {
					b.grow("n4")
					b.until("four nodes have their share", func() string { return b.level("n1", "n2", "n3", "n4") })
				} else {
					b.wantVersion("n2", fsm.NewestVersion)
				}
				b.kill("n1")
				b.wish("n2", "n1", catalog.Gone)
				b.until("n1 is forgotten", func() string { return b.forgotten("n2", "n1") })
				load, _ := b.spread("n2")
				if !spare && (load["n2"] != b.partitions || load["n3"] != b.partitions) {
					t.Errorf("replicas: %v", load)
				}
				b.wantActive("n2", d, sent)
				if !spare { // a new node gets the places that were given up
					b.grow("n5")
					b.whole("n2 n3 n5")
				}
			})
		})
	}
}

// A replica that its group still has, or that the catalog wants here, is not deleted whoever asks.
func TestNoReplicaIsDeletedThatIsWanted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		const p = fsm.PartitionID(2)
		at := b.notLeading(p)
		n := b.all[at]
		if err := n.host.retire(t.Context(), n.dir, p, b.leader(p).Node()); err == nil {
			t.Error("a member was deleted")
		}
		if err := n.host.retire(t.Context(), n.dir, p, at); err == nil {
			t.Error("a member was deleted, nobody leads")
		}
		// The group has removed it, and the catalog wants it here: the leader takes it in again.
		r := b.leader(p)
		_, index := r.Configuration()
		if err := r.Remove(at, index).Error(); err != nil {
			t.Fatal(err)
		}
		if err := n.host.retire(t.Context(), n.dir, p, r.Node()); err == nil {
			t.Error("a replica that the catalog wants was deleted")
		}
		b.whole("n1 n2 n3")
		if n.rebuilds.Load() != 0 {
			t.Errorf("%d deletions", n.rebuilds.Load())
		}
		b.wantActive(at, d, sent)
	})
}

// A new cluster gets its first version when every node has said what it knows, and not before.
func TestTheFirstClusterVersionWaitsForEveryNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.wantVersion("n1", fsm.NewestVersion)
	})
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.knows("n3", fsm.VersionFirst)
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.grow("n4")
		time.Sleep(5 * time.Minute)
		if v := b.all["n1"].dir.View().ClusterVersion(); v != fsm.VersionFirst {
			t.Errorf("cluster version %s with a node that knows none", v)
		}
		if err := b.all["n1"].dir.Wish(t.Context(), "n1", catalog.Drain); err == nil ||
			!strings.Contains(err.Error(), "n3") {
			t.Errorf("a wish with a node that knows none: %v", err)
		}
		if load, _ := b.spread("n1"); load["n4"] != 0 {
			t.Errorf("replicas: %v", load)
		}
		// Nobody can be forgotten yet, so the refusal does not name that as the cure.
		b.kill("n3")
		time.Sleep(time.Second)
		err := b.all["n1"].dir.Wish(t.Context(), "n3", catalog.Gone)
		if err == nil || !strings.Contains(err.Error(), "node n3 (n3) does not answer: start it, or wait until it has been silent for") ||
			strings.Contains(err.Error(), "forget") || strings.Contains(err.Error(), "finalize") || !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("a node is to be forgotten before the first version: %v", err)
		}
	})
}

func (b *brokers) wantVersion(id fsm.NodeID, want fsm.Version) {
	b.t.Helper()
	b.until("the cluster version is known", func() string {
		if v := b.all[id].dir.View().ClusterVersion(); v != want || b.all[id].host.ClusterVersion() != want {
			return v.String()
		}
		return ""
	})
}

// knows makes a node answer as one whose program knows no version above one.
func (b *brokers) knows(id fsm.NodeID, newest fsm.Version) {
	h := b.all[id].host
	b.all[id].port.Handle(KindStatus, func(context.Context, fsm.NodeID, []byte) ([]byte, error) {
		all := h.Status()
		for i := range all {
			all[i].CatalogLevel = min(all[i].CatalogLevel, newest)
		}
		return appendJSON(nil, all)
	})
}
