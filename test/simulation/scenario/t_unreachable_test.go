package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// onFive runs a scenario on five nodes, whose partitions have three replicas each: so one partition can
// be without a majority while others go on.
func onFive(t *testing.T, f func(b *bench)) {
	on(t, simulation.LabConfig{Nodes: 5, Partitions: 5, ProposeTimeout: 5 * time.Second}, f)
}

// home is the only partition of an entity.
func (b *bench) home(name string) fsm.PartitionID {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	d, err := b.lab.Directory(b.node()).Get(ctx, name)
	b.must("find "+name, err)
	return d.Partitions[0]
}

// split finds two of the nodes whose loss takes the majority from the partition down and from none of
// those up; the catalog is one of them always.
func (b *bench) split(down fsm.PartitionID, up ...fsm.PartitionID) (nodes []int, ok bool) {
	holds := func(p fsm.PartitionID, lost ...int) (left int) {
		for _, h := range b.lab.Holders(p) {
			if h != lost[0] && h != lost[1] {
				left++
			}
		}
		return left
	}
	for i := range b.lab.Nodes() {
		for j := range i {
			fits := holds(down, i, j) == 1
			for _, p := range append(up, fsm.CatalogPartition) {
				fits = fits && holds(p, i, j) >= 2
			}
			if fits {
				return []int{i, j}, true
			}
		}
	}
	return nil, false
}

// pairOf makes a destination and a source that forwards to it, so that the destination's partition can
// be lost alone, and returns the nodes whose loss does that.
func (b *bench) pairOf() (from, to string, nodes []int) {
	b.Helper()
	for i := range 20 {
		from, to = fmt.Sprint("from", i), fmt.Sprint("to", i)
		b.queue(to)
		b.queue(from, forwardTo(to))
		if nodes, ok := b.split(b.home(to), b.home(from)); ok {
			return from, to, nodes
		}
	}
	b.Fatal("all queues are on the same nodes")
	return "", "", nil
}

// T-193; S-209, S-277
func TestT193ADestinationWithoutAMajorityIsWaitedFor(t *testing.T) {
	onFive(t, func(b *bench) {
		from, to, nodes := b.pairOf()
		for _, n := range nodes {
			b.lab.Crash(n, true)
		}
		b.must("lead", b.ledAgain(b.home(from)))
		c := b.survivor()
		c.send(from, "1", "2", "3")
		b.pass(30 * time.Second)
		n := b.counts(from)
		want(b, "dead letters", n.DeadLetter, 0)
		want(b, "on their way", n.Transfer, 3)
		for _, n := range nodes {
			b.must("start", b.lab.Start(n))
		}
		b.must("serve", b.lab.Settled())
		b.pass(time.Minute) // the longest pause of the forwarder
		wantAll(b, "arrived", texts(b.survivor().peekAll(to)), "1", "2", "3")
		n = b.counts(from)
		want(b, "left", n.Active+n.DeadLetter+n.Transfer, 0)
	})
}

// ledAgain waits until a partition has a leader.
func (b *bench) ledAgain(p fsm.PartitionID) error {
	for began := time.Now(); time.Since(began) < patience; b.pass(100 * time.Millisecond) {
		if b.lab.Leader(p) >= 0 {
			return nil
		}
	}
	return fmt.Errorf("partition %d has no leader", p)
}

// T-278; S-277
func TestT278AnUnreachableDestinationIsTriedForEver(t *testing.T) {
	onFive(t, func(b *bench) {
		from, to, nodes := b.pairOf()
		for _, n := range nodes {
			b.lab.Crash(n, true)
		}
		p := b.home(from)
		b.must("lead", b.ledAgain(p))
		b.survivor().send(from, "a")
		b.pass(4 * time.Minute)
		leader := b.lab.Leader(p)
		for _, next := range b.lab.Holders(p) { // another leader goes on
			if next != leader {
				b.must("lead", b.lab.Lead(p, next))
				break
			}
		}
		b.pass(4 * time.Minute)
		want(b, "on its way", b.counts(from).Transfer, 1)
		for _, n := range nodes {
			b.must("start", b.lab.Start(n))
		}
		b.must("serve", b.lab.Settled())
		b.pass(time.Minute)
		wantAll(b, "arrived", texts(b.survivor().peekAll(to)), "a")
		b.pass(5 * time.Minute)
		want(b, "once", b.counts(to).Active, 1)
		n := b.counts(from)
		want(b, "left", n.Active+n.DeadLetter+n.Transfer, 0)
	})
}

// partlyDown makes a partitioned queue q and takes the majority from one of its partitions, while all
// others go on; it returns the share that is down, and the nodes to start again.
func (b *bench) partlyDown() (d *fsm.Descriptor, share int, nodes []int) {
	b.Helper()
	b.queue("q", partitioned)
	ctx, cancel := b.soon()
	defer cancel()
	d, err := b.lab.Directory(b.node()).Get(ctx, "q")
	b.must("find", err)
	for i, p := range d.Partitions {
		others := slices.Delete(slices.Clone(d.Partitions), i, i+1)
		if nodes, ok := b.split(p, others...); ok {
			for _, n := range nodes {
				b.lab.Crash(n, true)
			}
			for _, o := range others {
				b.must("lead", b.ledAgain(o))
			}
			return d, i, nodes
		}
	}
	b.Fatalf("no partition of %v can be lost alone", d.Partitions)
	return nil, 0, nil
}

// T-266; S-314
func TestT266KeyedMessagesNeverLandElsewhere(t *testing.T) {
	onFive(t, func(b *bench) {
		d, share, nodes := b.partlyDown()
		down := d.Partitions[share]
		c := b.survivor()
		s := c.sender("q")
		for i := range 20 {
			s.send(message(fmt.Sprint("free ", i)))
		}
		refused, keyed := 0, map[string]bool{}
		for i := range 20 {
			key := fmt.Sprint("k", i)
			switch err := s.try(message(key, withKey(key))); conditionOf(err) {
			case "":
				b.must("send", err)
				keyed[key] = true
			case timedOut:
				refused++
			default:
				b.Fatalf("send with key %s: %v", key, err)
			}
		}
		if refused == 0 || refused == 20 {
			b.Fatalf("%d of 20 keyed messages were refused", refused)
		}
		for _, n := range nodes {
			b.must("start", b.lab.Start(n))
		}
		b.must("serve", b.lab.Settled())
		for _, m := range b.survivor().peekAll("q") {
			key, _ := m.Annotations["x-opt-partition-key"].(string)
			if at := fsm.PartitionID(m.seq() >> 48); key != "" && !keyed[key] && at != down {
				b.Errorf("%s was refused and is in partition %d", key, at)
			}
		}
	})
}

// T-272; S-322, S-245
func TestT272WhatIsMissingIsMarked(t *testing.T) {
	onFive(t, func(b *bench) {
		d, share, nodes := b.partlyDown()
		c := b.survivor()
		s, r := c.sender("q"), c.receiver("q")
		for i := range 3 * len(d.Partitions) {
			s.send(message(fmt.Sprint(i)))
		}
		r.one().complete()
		sum := uint64(0)
		for i := range d.Partitions { // of these the operations API makes its marks
			ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
			k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(i)}
			a, err := b.router().Query(ctx, k, &fsm.Counts{})
			cancel()
			if want(b, fmt.Sprint("share ", i, " answers"), err == nil, i != share); err == nil {
				sum += a.Counts.Active
			}
		}
		want(b, "counted", sum, uint64(3*len(d.Partitions)-1))
		err := b.tryUpdate("q", lockFor(7*time.Second))
		if !errors.Is(err, fsm.ErrUnavailable) && !errors.Is(err, fsm.ErrUnknown) {
			b.Fatalf("an update: %v, want a failure that can be tried again", err)
		}
		for _, n := range nodes {
			b.must("start", b.lab.Start(n))
		}
		b.must("serve", b.lab.Settled())
		want(b, "counted", b.counts("q").Active, uint64(3*len(d.Partitions)-1))
		b.must("update again", b.tryUpdate("q", lockFor(8*time.Second)))
	})
}

// T-268 with a partition that is down; S-316
func TestT268APartitionThatIsDownHoldsUpNoReceiver(t *testing.T) {
	onFive(t, func(b *bench) {
		d, _, _ := b.partlyDown()
		c := b.survivor()
		s, r := c.sender("q"), c.receiver("q")
		for i := range 4 * len(d.Partitions) { // each share is asked first now and then
			s.send(message(fmt.Sprint(i)))
			sent := time.Now()
			m := r.one()
			if took := time.Since(sent); took > time.Second {
				b.Errorf("message %d came after %v", i, took)
			}
			want(b, "the message", m.text(), fmt.Sprint(i))
			m.complete()
		}
		r.none(time.Minute) // it waits at all shares
		s.send(message("late"))
		sent := time.Now()
		want(b, "the message", r.one().text(), "late")
		if took := time.Since(sent); took > time.Second {
			b.Errorf("the last message came after %v", took)
		}
	})
}
