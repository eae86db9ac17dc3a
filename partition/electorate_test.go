package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// place gives a partition other members.
func (b *brokers) place(t *testing.T, p fsm.PartitionID, members ...fsm.NodeID) {
	t.Helper()
	dir := b.all[b.ids[0]].dir
	i := slices.IndexFunc(dir.View().Groups(), func(g catalog.Group) bool { return g.ID == p })
	_, err := dir.change(shortly(t, time.Minute), &catalog.Change{Replace: &catalog.Exchange{
		ID: p, From: dir.View().Groups()[i].Members, Members: members}})
	if err != nil {
		t.Fatal(err)
	}
}

// decides fails the test unless the catalog commits a change within a minute.
func (b *brokers) decides(t *testing.T, through fsm.NodeID) {
	t.Helper()
	dir := b.all[through].dir
	_, err := dir.change(shortly(t, time.Minute), &catalog.Change{Place: &catalog.Placement{Groups: dir.View().Groups()}})
	if err != nil {
		t.Errorf("the catalog does not decide: %v", err)
	}
}

// leave stops a node as an operator does: it says goodbye.
func (b *brokers) leave(id fsm.NodeID) {
	b.kill(id)
	b.left.Store(id, true)
}

// late joins a node that founded nothing.
func (b *brokers) late(id fsm.NodeID) {
	b.ids = append(b.ids, id)
	b.cfg = func(c *Config) { c.Incarnation = fsm.Incarnation(700 + len(b.ids)) }
	b.join(id, nil)
}

// wantCatalog waits until the catalog has those voters for a while.
func (b *brokers) wantCatalog(t *testing.T, within time.Duration, want string) {
	t.Helper()
	for began := time.Now(); b.voters(0) != want; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("the catalog has %q after %v, want %q", b.voters(0), within, want)
		}
	}
	time.Sleep(10 * time.Second)
	if got := b.voters(0); got != want {
		t.Fatalf("the catalog has %q after %q", got, want)
	}
}

// Adding a node, stopping it, and the loss of another one: three commands of an operator, of which none may stop the
// catalog. A node that drains from the start is given no replica, so the partitions serve as well. Without that the planner
// moves replicas to the added node, and partitions that lose two of three stop.
func TestANodeThatCameAndWentDoesNotCount(t *testing.T) {
	for name, c := range map[string]struct{ goodbye, drains bool }{
		"stopped": {true, false}, "killed": {false, false}, "drained and stopped": {true, true}, "drained and killed": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBrokersWith(t, 3, 5)
				defer b.close()
				b.createQueue(shortly(t, time.Minute), "n1", queue("orders", true))
				b.late("n4")
				if c.drains {
					b.wish("n1", "n4", catalog.Drain)
				}
				time.Sleep(time.Minute)
				if c.goodbye {
					b.leave("n4")
				} else {
					b.kill("n4")
				}
				time.Sleep(time.Second)
				b.kill("n3")
				b.decides(t, "n1")
				if c.drains {
					b.createQueue(shortly(t, time.Minute), "n1", queue("made by two of three", false))
				}
			})
		})
	}
}

// The build before gave a vote to each node that came. Such a catalog gets an odd number of voters.
func TestAnEvenNumberOfVotersGetsOdd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		b.late("n4")
		b.wantCatalog(t, 10*time.Second, "(n4) n1 n2 n3")
		if err := b.leader(0).AddVoter("n4", 0).Error(); err != nil {
			t.Fatal(err)
		}
		b.wantCatalog(t, 10*time.Second, "(n4) n1 n2 n3")
		// One with a vote that is lost at once, before anybody could take the vote.
		if err := b.leader(0).AddVoter("n4", 0).Error(); err != nil {
			t.Fatal(err)
		}
		b.leave("n4")
		b.wantCatalog(t, 10*time.Second, "(n4) n1 n2 n3")
	})
}

// five makes a cluster of five nodes that all have a place and a vote.
func five(t *testing.T, f func(t *testing.T, b *brokers)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		b := newBrokersWith(t, 5, 5)
		defer b.close()
		b.createQueue(shortly(t, time.Minute), "n1", queue("orders", true))
		b.wantCatalog(t, time.Minute, "n1 n2 n3 n4 n5")
		f(t, b)
	})
}

// A cluster that is made smaller bears the loss of a node at each moment, and again after it.
func TestNodesThatLeaveLoseTheirVotes(t *testing.T) {
	five(t, func(t *testing.T, b *brokers) {
		if b.leader(0).Node() == "n5" || b.leader(0).Node() == "n4" {
			if err := b.leader(0).Transfer(t.Context(), "n1"); err != nil {
				t.Fatal(err)
			}
		}
		b.leave("n5")
		time.Sleep(5 * time.Second)
		b.leave("n4")
		b.wantCatalog(t, 10*time.Second, "(n4) (n5) n1 n2 n3")
		b.kill("n3")
		b.decides(t, "n1")
	})
}

// Nodes that are upgraded one after the other keep their votes: without one of five the others bear one more loss,
// with three voters as with five.
func TestARestartTakesNoVote(t *testing.T) {
	five(t, func(t *testing.T, b *brokers) {
		for _, id := range b.ids {
			_, before := b.leader(0).Configuration()
			b.leave(id)
			time.Sleep(20 * time.Second)
			b.lifeOf[id]++
			b.cfg = func(c *Config) { c.Incarnation = fsm.Incarnation(1000*b.lifeOf[id] + len(id)) }
			b.join(id, nil)
			b.wantCatalog(t, 10*time.Second, "n1 n2 n3 n4 n5")
			if _, after := b.leader(0).Configuration(); after != before {
				t.Errorf("the restart of %s changed the voters", id)
			}
		}
	})
}

// Whatever comes and goes, one after the other, voters are one, three or five once the catalog is at rest.
func TestVotersAreOdd(t *testing.T) {
	simulatesLong(t)
	five(t, func(t *testing.T, b *brokers) {
		for i, step := range []func(){
			func() { b.leave("n5") },
			func() { time.Sleep(2 * time.Minute) },
			func() { b.late("n6") },
			func() { b.place(t, 1, "n1", "n2", "n6") },
			func() { b.kill("n4") },
			func() { time.Sleep(2 * time.Minute) },
			func() { time.Sleep(Defaults().ReplaceAfter) },
		} {
			step()
			time.Sleep(30 * time.Second)
			if n := len(b.leader(0).Status().Voters); n%2 != 1 {
				t.Errorf("step %d: %d voters: %s", i, n, b.voters(0))
			}
			b.decides(t, "n1")
		}
	})
}
