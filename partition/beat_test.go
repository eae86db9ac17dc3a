package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

func everyBeat() time.Duration {
	d := Defaults()
	return beatEvery(&d.Config)
}

// quiet waits until a group of three rests, and returns who leads it.
func quiet(t *testing.T, c *testCluster) *replica.Replica {
	t.Helper()
	leader := c.leader(1)
	time.Sleep(3 * time.Second)
	return leader
}

// Decision 0102: a group without work makes no calls. All groups of two nodes have one beat together.
func TestAGroupWithoutWorkMakesNoCalls(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.open(2)
		c.open(3)
		for p := fsm.PartitionID(1); p <= 3; p++ {
			c.leader(p)
		}
		quiet(t, c)
		calls, beats := c.net.Calls(KindRaft), c.net.Calls(KindBeat)
		const lasts = 10 * time.Minute
		time.Sleep(lasts)
		if n := c.net.Calls(KindRaft) - calls; n != 0 {
			t.Errorf("%d calls of raft in %v without work", n, lasts)
		}
		want := 3 * int(lasts/everyBeat()) // of each pair of nodes
		if n := c.net.Calls(KindBeat) - beats; n < want-6 || n > want+6 {
			t.Errorf("%d beats in %v, want %d", n, lasts, want)
		}
		for p := fsm.PartitionID(1); p <= 3; p++ {
			if r := c.leader(p); termOf(r) > 3 {
				t.Errorf("partition %d is in term %d", p, termOf(r))
			}
		}
	})
}

// A group that rests takes an entry as fast as one that does not, and its followers hear that it is committed.
func TestAGroupThatRestsWakesAtOnce(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.net.SetDelay(time.Millisecond, 0)
		for i := range 50 {
			leader := quiet(t, c)
			began := time.Now()
			if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(reqID(1, uint64(i+1)), "x")); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 5*time.Millisecond {
				t.Errorf("entry %d took %v, two ways through the network are 2 ms", i, d)
			}
			applied := leader.Applied()
			time.Sleep(3 * Defaults().CommitTimeout) // raft waits for one to two of them
			for _, id := range c.others(leader.Node()) {
				if got := c.nodes[id].host.Replica(1).Applied(); got != applied {
					t.Errorf("%s has applied %d of %d", id, got, applied)
				}
			}
		}
	})
}

// A leader of a group that rests is cut off. The others have a new one in the time that they had before groups rested. The
// old one gives up, and follows when it is back.
func TestAGroupThatRestsMissesItsLeader(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		for range 20 {
			old := quiet(t, c)
			c.net.Isolate(old.Node(), true)
			began := time.Now()
			led := false
			for time.Since(began) < 30*time.Second && !led {
				time.Sleep(10 * time.Millisecond)
				for _, id := range c.others(old.Node()) {
					led = led || c.nodes[id].host.Replica(1).Leading()
				}
			}
			limit := 2*Defaults().HeartbeatTimeout + everyBeat() // the patience of a follower is one to two of them
			if d := time.Since(began); d > limit {
				t.Errorf("without a leader for %v, want at most %v", d, limit)
			}
			if old.Leading() {
				t.Error("the old leader leads beside the new one")
			}
			c.net.Isolate(old.Node(), false)
			time.Sleep(5 * time.Second)
			now := c.leader(1)
			if l, _ := old.Leader(); l != now.Node() {
				t.Errorf("the old leader follows %q, want %q", l, now.Node())
			}
		}
	})
}

// A leader that can be heard by nobody, or hears nobody, must not lead on by what beats said.
func TestALeaderThatIsHeardByNobodyGivesUp(t *testing.T) {
	for name, cut := range map[string]func(c *testCluster, leader, other fsm.NodeID){
		"heard by nobody": func(c *testCluster, leader, other fsm.NodeID) { c.net.SetCut(leader, other, true) },
		"hears nobody":    func(c *testCluster, leader, other fsm.NodeID) { c.net.SetCut(other, leader, true) },
		"calls that hang": func(c *testCluster, leader, _ fsm.NodeID) {
			c.net.Swallow(func(from, to fsm.NodeID, _ uint8, _ []byte) bool { return from == leader || to == leader })
		},
	} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, c *testCluster) {
				old := quiet(t, c)
				for _, id := range c.others(old.Node()) {
					cut(c, old.Node(), id)
				}
				began := time.Now()
				for old.Leading() && time.Since(began) < 30*time.Second {
					time.Sleep(10 * time.Millisecond)
				}
				// The last beat that was answered began a beat ago at most, and a beat finds the end of the lease.
				if d, limit := time.Since(began), Defaults().LeaderLease+2*everyBeat(); d > limit {
					t.Errorf("it led for another %v, want at most %v", d, limit)
				}
			})
		})
	}
}

// A replica that rests is closed and opened: its leader must not take it for there meanwhile, nor miss it afterwards.
func TestAReplicaThatRestedComesBack(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		life := fsm.Incarnation(1)
		c.cfg = func(cfg *Config) { life++; cfg.Incarnation = life }
		leader := quiet(t, c)
		away := c.others(leader.Node())[0]
		term := termOf(leader)
		for range 5 {
			c.crash(away)
			time.Sleep(20 * time.Second)
			if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(fsm.RequestID{}, "x")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			c.start(away)
			c.open(1)
			time.Sleep(5 * time.Second)
			if got, want := c.nodes[away].host.Replica(1).Applied(), leader.Applied(); got != want {
				t.Errorf("%s has applied %d of %d", away, got, want)
			}
		}
		if got := termOf(leader); got != term || !leader.Leading() {
			t.Errorf("term %d, leading %v: a replica that came back disturbed its leader", got, leader.Leading())
		}
		calls := c.net.Calls(KindRaft)
		time.Sleep(time.Minute)
		if n := c.net.Calls(KindRaft) - calls; n != 0 {
			t.Errorf("%d calls of raft: the group does not rest again", n)
		}
	})
}

// A node that knows no beats has heartbeats as before.
func TestANodeWithoutBeatsHasHeartbeats(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.net.Swallow(func(_, _ fsm.NodeID, kind uint8, _ []byte) bool { return kind == KindBeat })
		leader := c.leader(1)
		term, calls := termOf(leader), c.net.Calls(KindRaft)
		time.Sleep(time.Minute)
		if got := termOf(leader); got != term || !leader.Leading() {
			t.Errorf("term %d, leading %v, want %d", got, leader.Leading(), term)
		}
		if n := c.net.Calls(KindRaft) - calls; n < 2*60*4-10 {
			t.Errorf("%d calls of raft in a minute: four heartbeats a second to each are missing", n)
		}
	})
}

// S-305: the age of what a follower of a resting group answers is small, and never smaller than true. An entry that the
// follower has not heard of is as old as the cut at least.
func TestAgesOfAGroupThatRests(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		leader := quiet(t, c)
		if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		quiet(t, c)
		age := func(id fsm.NodeID) time.Duration {
			t.Helper()
			r, err := c.nodes[id].host.Replica(1).Read(0, func(replica.Machine) {}, func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(r.Age) * time.Millisecond
		}
		for range 100 {
			for _, id := range c.ids {
				if d := age(id); d > time.Second {
					t.Errorf("%s of a group that rests says %v", id, d)
				}
			}
			time.Sleep(37 * time.Millisecond)
		}
		blind := c.others(leader.Node())[0]
		c.net.Swallow(func(_, to fsm.NodeID, kind uint8, _ []byte) bool { return to == blind && kind == KindRaft })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.sendVia(ctx, leader.Node(), enqueue(reqID(1, 2), "y")); err != nil {
			t.Fatal(err)
		}
		hidden := time.Now()
		for range 50 {
			time.Sleep(20 * time.Millisecond)
			if d := age(blind); d < time.Since(hidden) {
				t.Fatalf("%s says that it is %v old, and lacks an entry for %v", blind, d, time.Since(hidden))
			}
		}
	})
}

// S-305: a beat was made after the last one that its sender had heard, and no later time is known. One that took long on
// its way, or whose sender has heard nothing, makes no state seem younger.
func TestABeatIsAsOldAsWhatItsSenderHasHeard(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		leader := quiet(t, c)
		other := c.others(leader.Node())[0]
		c.net.Swallow(func(from, to fsm.NodeID, kind uint8, b []byte) bool {
			beat, err := raftnet.ParseBeat(b)
			crafted := kind == KindBeat && err == nil && beat.Life == 99
			return (from == other || to == other) && !crafted
		})
		age := func() time.Duration {
			r, err := c.nodes[other].host.Replica(1).Read(0, func(replica.Machine) {}, func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(r.Age) * time.Millisecond
		}
		number := uint64(0)
		beat := func(heard uint64) (answered uint64) {
			number++
			b, err := c.nodes[leader.Node()].port.Call(t.Context(), other, KindBeat, raftnet.AppendBeat(nil, &raftnet.Beat{
				Life: 99, Number: number, Heard: heard, Leads: []raftnet.Place{{Group: 1, Term: termOf(leader), Last: leader.LastIndex()}}}))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := raftnet.ParseBeat(b)
			if err != nil {
				t.Fatal(err)
			}
			return answer.Number
		}
		const lasts = 1500 * time.Millisecond // shorter than the patience of a follower
		time.Sleep(lasts)
		heard := beat(0)
		if d := age(); d < lasts {
			t.Errorf("a beat whose sender has heard nothing makes it %v old, want at least %v", d, lasts)
		}
		time.Sleep(100 * time.Millisecond)
		if beat(heard - 1); age() < lasts {
			t.Errorf("a beat whose sender has heard an earlier one makes it %v old", age())
		}
		last := beat(heard)
		time.Sleep(100 * time.Millisecond)
		beat(last)
		if d := age(); d < 100*time.Millisecond || d > 200*time.Millisecond {
			t.Errorf("a beat whose sender has heard the last one makes it %v old, want as old as that one", d)
		}
	})
}

// What a beat says wrongly costs an election at most. Here every beat of one node says that all groups rest with it, and
// that it leads them all, whatever is true.
func TestBeatsThatLie(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		leader := quiet(t, c)
		liar := c.others(leader.Node())[1]
		stop := make(chan struct{})
		var lies sync.WaitGroup
		var taken atomic.Int32
		lies.Go(func() {
			for n := uint64(1); ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
				// Every second beat is wrong by one term and one entry.
				places := []raftnet.Place{{Group: 1, Term: termOf(leader) + n%2, Last: leader.LastIndex() + n%2}, {Group: 77, Term: 1, Last: 1}}
				lie := raftnet.AppendBeat(nil, &raftnet.Beat{Life: 1, Number: n << 32, Heard: n, Leads: places, Rests: places})
				for _, id := range c.others(liar) {
					if _, err := c.nodes[liar].port.Call(t.Context(), id, KindBeat, lie); err == nil {
						taken.Add(1)
					}
				}
			}
		})
		for i := range 100 {
			if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(reqID(1, uint64(i+1)), "x")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s := leader.Status(); s.Failure != "" {
			t.Error(s.Failure)
		}
		close(stop)
		lies.Wait()
		if taken.Load() < 100 {
			t.Errorf("%d lies were read", taken.Load())
		}
		time.Sleep(time.Second)
		c.settled()
	})
}

// A cluster without work asks for few statuses, and meets a fault as soon as there is work.
func TestNobodyIsAskedWhileAllGroupsRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		b.whole("n1 n2 n3")
		time.Sleep(time.Minute)
		asked, called := b.net.Calls(KindStatus), b.net.Calls(KindRaft)
		time.Sleep(5 * time.Minute)
		if n, most := b.net.Calls(KindStatus)-asked, 3*3*10; n > most || n == 0 {
			t.Errorf("%d statuses in five minutes, want one of each node in thirty seconds by each, %d", n, most)
		}
		if n := b.net.Calls(KindRaft) - called; n != 0 {
			t.Errorf("%d calls of raft", n)
		}
		time.Sleep(10 * time.Minute) // answers are forgotten, which takes an entry
		if n := b.net.Calls(KindRaft) - called; n == 0 || n > 100 {
			t.Errorf("%d calls of raft to forget answers of four partitions", n)
		}
		bad := b.all["n2"]
		bad.disks[2].log.set(func(l *faultyLog) { l.err = errDisk })
		began := time.Now()
		for i := 0; !bad.host.Replica(2).Status().Broken; i++ {
			b.touch(i)
		}
		b.whole("n1 n2 n3")
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("mended after %v", took)
		}
		b.wantActive("n2", d, sent)
	})
}

// The node that a leadership goes to has gone, and lacks an entry. Raft takes no entries until the transfer ends. It ends
// when the node is reported lost, and otherwise by raft's election time-out.
func TestATransferToANodeThatIsGoneHoldsNobodyUp(t *testing.T) {
	for name, reported := range map[string]bool{"reported lost": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, c *testCluster) { c.handToTheGone(t, reported) })
		})
	}
}

func (c *testCluster) handToTheGone(t *testing.T, reported bool) {
	leader := quiet(t, c)
	target := c.others(leader.Node())[0]
	c.net.Isolate(target, true)
	if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(reqID(1, 1), "x")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- leader.Transfer(t.Context(), target) }()
	time.Sleep(time.Millisecond)
	most := Defaults().ElectionTimeout + 100*time.Millisecond
	if reported {
		most = 250 * time.Millisecond
		go c.nodes[leader.Node()].host.PeerLost(t.Context(), target)
	}
	began := time.Now()
	if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(reqID(1, 2), "y")); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > most {
		t.Errorf("an entry took %v, want at most %v", d, most)
	}
	if err := <-ended; err == nil || reported != errors.Is(err, replica.ErrPeerLost) {
		t.Errorf("the transfer ended with %v", err)
	}
	if !reported {
		return
	}
	leader = c.leader(1)
	began = time.Now()
	if err := leader.Transfer(t.Context(), target); !errors.Is(err, replica.ErrPeerLost) || time.Since(began) > 0 {
		t.Errorf("after %v a transfer to a lost node ended with %v, want at once with %v", time.Since(began), err, replica.ErrPeerLost)
	}
}

// Beats wait for nothing, not even where raft's loop hangs in a disk while it is to give its leadership to another node.
func TestBeatsGoOnWhileRaftHangs(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		release := c.nodes[old.Node()].disks[1].log.hang()
		ctx, end := context.WithCancel(t.Context())
		p := start(ctx, old, enqueue(reqID(1, 1), "x"))
		time.Sleep(10 * time.Millisecond)
		given := make(chan error, 1)
		go func() { given <- old.Transfer(ctx, c.others(old.Node())[0]) }()
		for range 60 {
			time.Sleep(time.Second)
			beaten := make(chan struct{})
			go func() { old.Beat(time.Now(), nil); close(beaten) }()
			select {
			case <-beaten:
			case <-time.After(10 * time.Second):
				t.Error("a beat waits")
			}
		}
		release()
		end()
		<-given
		<-p.done
	})
}

// What one beat says and another one does not.
func TestWhatChangedBetweenTwoBeats(t *testing.T) {
	place := func(group fsm.PartitionID, last uint64) raftnet.Place {
		return raftnet.Place{Group: group, Term: 5, Last: last}
	}
	newer := raftnet.Place{Group: 2, Term: 6, Last: 9}
	for name, c := range map[string]struct{ of, from, want []raftnet.Place }{
		"the same":          {[]raftnet.Place{place(1, 9), place(2, 9)}, []raftnet.Place{place(1, 9), place(2, 9)}, nil},
		"nothing before":    {[]raftnet.Place{place(1, 9), place(2, 9)}, nil, []raftnet.Place{place(1, 9), place(2, 9)}},
		"nothing any more":  {nil, []raftnet.Place{place(1, 9)}, nil},
		"another entry":     {[]raftnet.Place{place(1, 9), place(2, 10)}, []raftnet.Place{place(1, 9), place(2, 9)}, []raftnet.Place{place(2, 10)}},
		"another term":      {[]raftnet.Place{newer, place(3, 9)}, []raftnet.Place{place(2, 9), place(3, 9)}, []raftnet.Place{newer}},
		"one more between":  {[]raftnet.Place{place(1, 9), place(2, 9), place(3, 9)}, []raftnet.Place{place(1, 9), place(3, 9)}, []raftnet.Place{place(2, 9)}},
		"one more in front": {[]raftnet.Place{place(0, 9), place(3, 9)}, []raftnet.Place{place(3, 9)}, []raftnet.Place{place(0, 9)}},
		"one less":          {[]raftnet.Place{place(1, 9), place(4, 9)}, []raftnet.Place{place(1, 9), place(3, 9), place(4, 9)}, nil},
	} {
		if got := changed(c.of, c.from); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
