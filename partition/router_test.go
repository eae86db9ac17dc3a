package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// cluster3 runs f with three whole nodes and a queue with four shares, in a bubble.
func cluster3(t *testing.T, f func(t *testing.T, b *brokers, d *fsm.Descriptor)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		f(t, b, b.createQueue(shortly(t, time.Minute), "n1", queue("orders", true)))
	})
}

// S-313, S-315: a key always finds the same share, through every node.
func TestKeysStayInTheirShare(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		for i := range 12 {
			text := fmt.Sprint("session-", i)
			want := d.Partitions[fsm.KeyShare(text, len(d.Partitions))]
			for j, id := range b.ids {
				k := fsm.Key{Entity: d.ID, By: fsm.ByText, Text: text}
				n := sendOne(t, b.all[id].r, reqOf(j, 1, i+1), k)
				if n.Prefix() != want { // S-93: the number says where the message lives
					t.Errorf("%s through %s went to %d, not %d", text, id, n.Prefix(), want)
				}
			}
		}
	})
}

// S-314: without a key the shares take turns, and those without a leader are skipped; with a key an
// unavailable share is an error, never another share.
func TestRoundRobinSkipsWhatHasNoLeader(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		for _, p := range d.Partitions { // a follower hears of its leader after the queue is there
			for !b.all["n1"].r.send.known(p) {
				time.Sleep(50 * time.Millisecond)
			}
		}
		any := fsm.Key{Entity: d.ID}
		seen := map[fsm.PartitionID]int{}
		for i := range 40 {
			seen[sendOne(t, b.all["n1"].r, reqOf(0, 1, i+1), any).Prefix()]++
		}
		for _, p := range d.Partitions {
			if seen[p] != 10 {
				t.Errorf("share %d got %d of 40", p, seen[p])
			}
		}
		// One partition loses two of its replicas: their disks fail.
		dead := d.Partitions[2]
		for _, id := range b.ids[1:] {
			b.nodes[id].host.Replica(dead).Fail(errDisk)
		}
		time.Sleep(10 * time.Second)
		for i := range 30 {
			if p := sendOne(t, b.all["n1"].r, reqOf(0, 1, i+100), any).Prefix(); p == dead {
				t.Error("the share without a leader was used")
			}
		}
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: 2}
		_, err := b.all["n1"].r.Propose(shortly(t, time.Second), reqOf(0, 2, 1), k, &fsm.Enqueue{
			Messages: []fsm.Message{{Body: []byte("x")}}})
		if !errors.Is(err, fsm.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a key: %v", err)
		}
		// S-322: the rest is counted, and it is said that something is missing.
		c, complete, err := b.all["n1"].r.Counts(shortly(t, time.Second), d)
		if err != nil || complete || c.Active != 60 {
			t.Errorf("counts: %+v, complete %v, %v", c, complete, err)
		}
	})
}

// A2: an entity is known to every share when Create returns, and gone when Delete returns.
func TestEntitiesAreKnownWhenAnswered(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) {
		ctx := shortly(t, time.Minute)
		for round := range 20 {
			on, via := b.all[b.ids[round%3]], b.all[b.ids[(round+1)%3]]
			name := fmt.Sprint("q", round)
			d, err := on.dir.Create(ctx, queue(name, round%2 == 0))
			if err != nil {
				t.Fatal(err)
			}
			k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
			sendOne(t, via.r, reqOf(9, round+1, 1), k)
			got, err := via.dir.Entity(ctx, "Q"+name[1:]) // S-260
			if err != nil || got.ID != d.ID {
				t.Fatalf("by name: %+v, %v", got, err)
			}
			upd := *d
			upd.MaxDelivery = 3
			upd.Status = fsm.Disabled
			if _, err := on.dir.Update(ctx, upd); err != nil {
				t.Fatal(err)
			}
			o, err := via.r.Propose(ctx, reqOf(9, round+1, 2), k, &fsm.Enqueue{
				Messages: []fsm.Message{{Body: []byte("x")}}})
			if err != nil || o.Refusal != fsm.EntityDisabled { // S-252
				t.Fatalf("disabled: %+v, %v", o, err)
			}
			if err := via.dir.Delete(ctx, name); err != nil {
				t.Fatal(err)
			}
			// S-304: what was deleted through one node is not to be seen through any other.
			for _, n := range b.all {
				if _, err := n.dir.Get(ctx, name); !errors.Is(err, fsm.ErrNoEntity) {
					t.Fatalf("read after delete: %v", err)
				}
				some, err := n.dir.Some(ctx, []string{name, "ORDERS"})
				if err != nil || some[0] != nil || some[1] == nil || some[1].Name != "orders" {
					t.Fatalf("some after delete: %v, %v", some, err)
				}
			}
			o, err = on.r.Propose(ctx, reqOf(9, round+1, 3), k, &fsm.Enqueue{
				Messages: []fsm.Message{{Body: []byte("x")}}})
			if err != nil || o.Refusal != fsm.EntityNotFound {
				t.Fatalf("deleted: %+v, %v", o, err)
			}
		}
		if _, err := b.all["n2"].dir.Create(ctx, queue("ORDERS", false)); !refusedAs(err, fsm.EntityExists) {
			t.Errorf("created twice: %v", err)
		}
		if _, err := b.all["n2"].dir.Entity(ctx, "nothing"); !errors.Is(err, fsm.ErrNoEntity) {
			t.Errorf("missing: %v", err)
		}
		if err := b.all["n2"].dir.Delete(ctx, "nothing"); !errors.Is(err, fsm.ErrNoEntity) {
			t.Errorf("delete missing: %v", err)
		}
		l, err := b.all["n3"].dir.List(ctx, fsm.Queue, 0, -1)
		if err != nil || len(l) != 1 {
			t.Errorf("list: %d, %v", len(l), err)
		}
	})
}

func refusedAs(err error, r fsm.Refusal) bool {
	var e *fsm.RefusedError
	return errors.As(err, &e) && e.Refusal == r
}

// A2: a leader makes its share agree with the catalog, whatever was missed: entities created and
// deleted while it was away, and entities nobody knows any more.
func TestLeadersReconcile(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) {
		ctx := shortly(t, 10*time.Minute)
		// A change whose author dies before it reaches the shares.
		made, err := b.all["n1"].dir.change(ctx, createChange(queue("orphan", true)))
		if err != nil {
			t.Fatal(err)
		}
		for share := range made.Partitions {
			k := fsm.Key{Entity: made.ID, By: fsm.ByShare, Share: uint16(share)}
			sendOne(t, b.all["n2"].r, reqOf(9, share+1, 1), k)
		}
		if _, err := b.all["n1"].dir.change(ctx, deleteChange(made.ID)); err != nil {
			t.Fatal(err)
		}
		// A PutEntity that was under way meanwhile, and reaches the next leader, which remembers no
		// drops: the share knows what the catalog does not.
		p := made.Partitions[0]
		l := b.leader(p)
		if err := b.nodes[l.Node()].host.TransferLeadership(ctx, p, ""); err != nil {
			t.Fatal(err)
		}
		b.leader(p, l.Node())
		if _, err := b.all["n1"].dir.send.propose(ctx, p, fsm.Request{Entity: made.ID,
			Command: &fsm.PutEntity{Descriptor: *made}}, &attempts{}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // a partition is compared with the catalog every half
		for _, id := range b.ids {
			var known []fsm.KnownEntity
			b.nodes[id].host.Replica(p).View(func(m replica.Machine, _ uint64) { known = m.(replica.Knower).Known() })
			if slices.ContainsFunc(known, func(k fsm.KnownEntity) bool { return k.ID == made.ID }) {
				t.Errorf("%s still knows the entity", id)
			}
		}
	})
}

// S-259: a description that arrives behind the drop of its entity does not bring it back.
func TestDroppedEntityStaysDropped(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		ctx := shortly(t, time.Minute)
		if err := b.all["n1"].dir.Delete(ctx, d.Name); err != nil {
			t.Fatal(err)
		}
		o, err := b.all["n2"].dir.send.propose(ctx, d.Partitions[0], fsm.Request{Entity: d.ID,
			Command: &fsm.PutEntity{Descriptor: *d}}, &attempts{}, nil)
		if err != nil || o.Refusal != fsm.EntityNotFound {
			t.Errorf("got %+v, %v", o, err)
		}
	})
}

// RUL-19: a life of a node that the catalog declares over is refused by every partition.
func TestLostNodesAreToldToThePartitions(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		ctx := shortly(t, time.Minute)
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
		sendOne(t, b.all["n1"].r, fsm.RequestID{Node: 77, Pump: 1, Counter: 1}, k)
		if _, err := b.all["n2"].dir.change(ctx, lostChange(77)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		o, err := b.all["n1"].r.Propose(ctx, fsm.RequestID{Node: 77, Pump: 1, Counter: 2}, k,
			&fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
		if err != nil || o.Refusal != fsm.NodeExpired {
			t.Errorf("got %+v, %v", o, err)
		}
	})
}

// A2, A3: nodes that come later serve clients. Those that the planner gives a place vote in the catalog, three at most.
func TestNodeJoins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 1)
		defer b.close()
		d := b.createQueue(shortly(t, time.Minute), "n1", queue("orders", false))
		for i := 2; i <= 4; i++ {
			id := fsm.NodeID(fmt.Sprint("n", i))
			b.ids = append(b.ids, id)
			b.cfg = func(c *Config) { c.Incarnation = fsm.Incarnation(200 + i) }
			b.join(id, nil)
		}
		for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
			b.votersHavePlaces(t, "n1")
		}
		for i, id := range b.ids {
			sendOne(t, b.all[id].r, reqOf(i, 5, 1), fsm.Key{Entity: d.ID})
		}
		if got := b.voters(0); got != "(n4) n1 n2 n3" {
			t.Errorf("catalog: %s", got)
		}
	})
}

// votersHavePlaces fails the test if a node that did not found the cluster votes in the catalog without a replica of a
// partition that it should hold.
func (b *brokers) votersHavePlaces(t *testing.T, founder fsm.NodeID) {
	t.Helper()
	for word := range strings.FieldsSeq(b.voters(0)) {
		id := fsm.NodeID(word)
		if strings.HasPrefix(word, "(") || id == founder {
			continue
		}
		if !slices.ContainsFunc(b.all[founder].dir.View().Groups(), func(g catalog.Group) bool {
			return g.ID != fsm.CatalogPartition && slices.Contains(g.Members, id)
		}) {
			t.Fatalf("%s votes in the catalog and has no place", id)
		}
	}
}

// A3: leaderships go to the nodes that the placement prefers.
func TestLeadersSpread(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		b.crash2(t, "n1")
		time.Sleep(30 * time.Second)
		b.restart("n1", 300)
		time.Sleep(2 * time.Minute)
		for _, g := range b.all["n2"].dir.View().Groups() {
			if r := b.leader(g.ID); r.Node() != g.Members[0] {
				t.Errorf("partition %d is led by %s, not %s", g.ID, r.Node(), g.Members[0])
			}
		}
		_ = d
	})
}

// A node that was stopped in good order has handed its leaderships over. It gets them back when it is there again, as a
// node that was killed does.
func TestLeadersReturnAfterARestartInGoodOrder(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		time.Sleep(time.Minute)
		for _, id := range b.ids {
			b.stop(id)
			time.Sleep(3 * time.Second)
			b.revive(id)
			time.Sleep(time.Minute)
			for _, g := range b.all["n2"].dir.View().Groups() {
				if r := b.leader(g.ID); r.Node() != g.Members[0] {
					t.Errorf("a minute after the restart of %s, partition %d is led by %s, not %s",
						id, g.ID, r.Node(), g.Members[0])
				}
			}
		}
	})
}

// The same for a node that came back with an empty disk, and so with another identity.
func TestLeadersReturnToANewDisk(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		time.Sleep(time.Minute)
		b.stop("n3")
		b.ids = append(b.ids, "n4")
		b.cfg = func(c *Config) { c.Incarnation = 777 }
		b.named = "n3"
		b.join("n4", nil)
		b.whole("n1 n2 n4")
		time.Sleep(time.Minute)
		for _, g := range b.all["n2"].dir.View().Groups() {
			if r := b.leader(g.ID); r.Node() != g.Members[0] {
				t.Errorf("partition %d is led by %s, not %s", g.ID, r.Node(), g.Members[0])
			}
		}
	})
}

// stop ends a node as SIGTERM does: it hands its leaderships over.
func (b *brokers) stop(id fsm.NodeID) {
	b.t.Helper()
	n := b.all[id]
	n.sup.Close()
	if err := n.host.Close(shortly(b.t.(*testing.T), time.Minute)); err != nil {
		b.t.Error(err)
	}
	n.port.Kill()
	b.nodes[id].host = nil
	delete(b.all, id)
}

// What an operator moves stays where it was put.
func TestBalanceRespectsOperators(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		time.Sleep(time.Minute)
		p := d.Partitions[0]
		old := b.leader(p).Node()
		to := b.others(old)[0]
		if err := b.nodes[old].host.TransferLeadership(t.Context(), p, to); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if l := b.leader(p).Node(); l != to {
			t.Errorf("led by %s, not by %s", l, to)
		}
	})
}

// A17: a cluster that starts again serves without waiting for election time-outs.
func TestColdStartIsFast(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		sendOne(t, b.all["n1"].r, reqOf(0, 1, 1), fsm.Key{Entity: d.ID, By: fsm.ByShare})
		for _, id := range b.ids {
			b.crash2(t, id)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		for i, id := range b.ids {
			b.restart(id, fsm.Incarnation(400+i))
		}
		for _, p := range d.Partitions {
			b.leader(p)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("leaders after %v", took)
		}
		c, complete, err := b.all["n2"].r.Counts(shortly(t, time.Minute), d)
		if err != nil || !complete || c.Active != 1 {
			t.Errorf("counts: %+v %v %v", c, complete, err)
		}
	})
}

// A18: a request that took something and lost its leader while its caller gave up is found again.
func TestCallerGoneAndLeaderLost(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
		sendOne(t, b.all["n1"].r, reqOf(0, 1, 1), k)
		p := d.Partitions[0]
		l := b.leader(p)
		via := b.others(l.Node())[0]
		// The leader's entries reach the followers, but its answer does not reach the caller.
		release := b.nodes[l.Node()].disks[p].log.hang()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var o fsm.Outcome
		var err error
		go func() {
			defer close(done)
			o, err = b.all[via].r.Propose(ctx, reqOf(1, 1, 1), k, &fsm.Lock{Max: 1, Wait: 60_000})
		}()
		synctest.Wait()
		b.net.SetCut(via, l.Node(), true)
		release()
		time.Sleep(100 * time.Millisecond)
		b.net.SetCut(l.Node(), via, true)
		cancel()
		b.net.SetCut(via, l.Node(), false)
		b.net.SetCut(l.Node(), via, false)
		<-done
		if err != nil || len(o.Locked) != 1 {
			t.Errorf("what was taken is not told: %+v, %v", o, err)
		}
	})
}

// Commands of a partition itself belong to no entity: Share names the partition.
func TestCommandsWithoutAnEntity(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		k := fsm.Key{By: fsm.ByShare, Share: uint16(d.Partitions[1])}
		o, err := b.all["n2"].r.Propose(t.Context(), fsm.RequestID{}, k,
			&fsm.DropPumps{Node: 1, Pumps: []uint64{1, 2}})
		if err != nil || o.Refusal != fsm.None {
			t.Errorf("got %+v, %v", o, err)
		}
	})
}

func createChange(d fsm.Descriptor) *catalog.Change { return &catalog.Change{Create: &d} }

func deleteChange(id fsm.EntityID) *catalog.Change {
	return &catalog.Change{Delete: &catalog.Deletion{ID: id}}
}

func lostChange(i fsm.Incarnation) *catalog.Change {
	return &catalog.Change{Lost: &catalog.Loss{Incarnation: i}}
}

// crash2 stops a whole node; restart starts it again with its disks.
func (b *brokers) crash2(t *testing.T, id fsm.NodeID) {
	t.Helper()
	b.all[id].sup.Close()
	b.crash(id)
}

func (b *brokers) restart(id fsm.NodeID, i fsm.Incarnation) {
	b.cfg = func(c *Config) { c.Incarnation = i }
	b.join(id, b.ids)
}
