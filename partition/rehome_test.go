package partition

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// rehomed moves the queues of a test to another partition, and waits for the ends of the moves.
func (b *brokers) rehome(via fsm.NodeID, to fsm.PartitionID, names ...string) {
	b.t.Helper()
	for _, name := range names {
		if moves, err := b.all[via].dir.Rehome(b.t.Context(), name, to, false); err != nil || len(moves) != 1 {
			b.t.Fatalf("rehome %s: %v, %v", name, moves, err)
		}
	}
	b.until("the shares have moved", func() string { return b.rehoming(via) })
}

// rehoming tells what moves.
func (b *brokers) rehoming(via fsm.NodeID) string {
	for _, r := range b.all[via].dir.View().Rehomings() {
		return fmt.Sprintf("%+v", r)
	}
	return ""
}

// T-270 for a share: queues move to another partition while their clients go on.
func TestASharesMoveKeepsWhatItPromised(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 2 })
		defer b.close()
		b.net.SetDelay(2*time.Millisecond, 0)
		b.wantVersion("n1", fsm.NewestVersion)
		p := newPromises(t, b)
		p.rehomed = true
		names := []string{"work", "held", "later", "once", "quiet", "sessions"}
		targets := map[string]fsm.PartitionID{}
		for _, name := range names {
			targets[name] = 3 - p.queues[name].Partitions[0]
		}
		p.make()
		sending, stop := context.WithCancel(t.Context())
		receiving, end := context.WithCancel(t.Context())
		defer end()
		p.load(sending, receiving)
		time.Sleep(3 * time.Second)
		for _, name := range names {
			b.rehome("n2", targets[name], name)
		}
		t.Logf("moved after %v", time.Since(p.began))
		for _, name := range names {
			if d, err := b.all["n1"].dir.Get(t.Context(), name); err != nil || d.Partitions[0] != targets[name] {
				t.Errorf("%s is in partition %d, want %d, %v", name, d.Partitions[0], targets[name], err)
			}
		}
		time.Sleep(time.Until(p.began.Add(time.Duration(p.each+1) * 5 * time.Second))) // the last scheduled message has come
		stop()
		time.Sleep(10 * time.Second) // the queues are empty by then
		end()
		p.judge()
		t.Logf("%d messages, the longest pause was %v", len(p.sent), time.Duration(p.longest.Load()))
	})
}

// homes returns the partitions that serve the share of an entity, as their leaders have it.
func (b *brokers) homes(id fsm.EntityID) (homes []fsm.PartitionID) {
	for _, g := range b.all["n1"].dir.View().Groups() {
		a, err := b.all["n1"].dir.send.query(b.t.Context(), g.ID, fsm.QueryRequest{Entity: id, Query: &fsm.Counts{}})
		if err == nil && a.Refusal == fsm.None {
			homes = append(homes, g.ID)
		}
	}
	return homes
}

// The steps of a move of a share, in their order. After each of them something may die.
const (
	shareBegun  = 1 + iota // the catalog wants it
	shareClosed            // nobody serves the share
	shareSealed            // the new home has all of it
	shareOpened            // the catalog says that it is there
	shareMoved             // the move is over
)

// T-271 for a share: the catalog's leader, the leader of the old home or that of the new one dies at each step of a move
// under load. The move ends or is given up, exactly one home serves, and nothing is lost or comes twice.
func TestACrashAtEachStepOfASharesMove(t *testing.T) {
	for step := shareBegun; step <= shareMoved; step++ {
		for _, victim := range []string{"catalog", "source", "target"} {
			t.Run(fmt.Sprintf("%s after step %d", victim, step), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { crashInRehoming(t, step, victim) })
			})
		}
	}
}

func crashInRehoming(t *testing.T, step int, victim string) {
	b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 2 })
	defer b.close()
	b.net.SetDelay(2*time.Millisecond, 0)
	b.wantVersion("n1", fsm.NewestVersion)
	d := b.createQueue(t.Context(), "n1", queue("orders", false))
	from := d.Partitions[0]
	for i := range 50 {
		sendOne(t, b.all["n1"].r, reqOf(0, 1, i+1), fsm.Key{Entity: d.ID})
	}
	locked := lockAll(t, b, d, 20)
	via := b.leader(fsm.CatalogPartition).Node()
	id := map[string]fsm.NodeID{"catalog": via, "source": b.leader(from).Node(), "target": b.leader(3 - from).Node()}[victim]
	if _, err := b.all[via].dir.Rehome(t.Context(), "orders", 3-from, false); err != nil {
		t.Fatal(err)
	}
	b.shareStep(d.ID, from, step)
	w := b.trafficOf(d, 25*time.Second, b.others(id)...)
	b.kill(id)
	time.Sleep(20 * time.Second)
	b.revive(id)
	b.until("the move is over", func() string {
		for _, r := range b.all[b.others(id)[0]].dir.View().Rehomings() {
			if r.Active() {
				return fmt.Sprintf("%+v", r)
			}
		}
		return ""
	})
	time.Sleep(time.Second)
	close(w.stop)
	<-w.done
	now, err := b.all[b.others(id)[0]].dir.Get(t.Context(), "orders")
	if homes := b.homes(d.ID); err != nil || len(homes) != 1 || homes[0] != now.Partitions[0] {
		t.Errorf("partitions %v serve the share, and the catalog has it in %v, %v", homes, now.Partitions, err)
	}
	for _, m := range locked {
		o, err := b.all["n1"].r.Propose(t.Context(), reqOf(3, 5, int(m.Seq)), fsm.Key{Entity: d.ID},
			&fsm.Settle{Items: []fsm.SettleItem{{Seq: m.Seq, Token: m.Token, Verdict: fsm.Complete}}})
		if err != nil || o.Refusal != fsm.None || o.Refusals[0] != fsm.None {
			t.Errorf("lock of message %d: %+v, %v", m.Seq, o, err)
		}
	}
	w.judgeAll(30)
	t.Logf("in partition %v, the longest pause was %v", now.Partitions, w.longest)
}

// lockAll locks messages for the longest time.
func lockAll(t *testing.T, b *brokers, d *fsm.Descriptor, n int) []fsm.Delivery {
	t.Helper()
	o, err := b.all["n1"].r.Propose(t.Context(), reqOf(3, 2, 1), fsm.Key{Entity: d.ID}, &fsm.Lock{Max: uint32(n), MaxBytes: 1 << 20})
	if err != nil || len(o.Locked) != n {
		t.Fatalf("%d messages are locked, %v", len(o.Locked), err)
	}
	return o.Locked
}

// judgeAll receives what is left, and looks whether each message came once: those of the traffic, and extra ones.
func (w *traffic) judgeAll(extra int) {
	t := w.b.t
	t.Helper()
	for n := 1; ; n++ {
		o, err := w.b.all["n1"].r.Propose(t.Context(), reqOf(7, 3, n), fsm.Key{Entity: w.d.ID}, &fsm.Lock{Max: 100, MaxBytes: 1 << 20, Delete: true})
		if err != nil || o.Refusal != fsm.None {
			t.Fatalf("receive: %+v, %v", o, err)
		}
		if len(o.Locked) == 0 {
			break
		}
		for _, m := range o.Locked {
			w.got[m.Seq]++
		}
	}
	last := fsm.SequenceNumber(0)
	for n := range w.sent {
		if w.got[n] != 1 || w.sent[n] != 1 {
			t.Errorf("message %d was stored %d times and received %d times", n, w.sent[n], w.got[n])
		}
		last = max(last, n)
	}
	if len(w.got) != len(w.sent)+extra || int(last) != 50+len(w.sent) || len(w.sent) < 100 {
		t.Errorf("%d messages were sent, the last has number %d, and %d received with %d that were there", len(w.sent), last,
			len(w.got), extra)
	}
}

// shareStep waits until the move of a share has come to a step, or is over.
func (b *brokers) shareStep(id fsm.EntityID, from fsm.PartitionID, step int) {
	b.t.Helper()
	for range 100_000 {
		r, ok := b.leader(fsm.CatalogPartition), false
		var now catalog.Rehoming
		now, ok = r.Catalog().Rehoming(id)
		if b.shareReached(now, ok, id, from, step) {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	b.t.Fatalf("the move of the share does not come to step %d", step)
}

func (b *brokers) shareReached(now catalog.Rehoming, ok bool, id fsm.EntityID, from fsm.PartitionID, step int) (is bool) {
	switch step {
	case shareBegun:
		return ok
	case shareMoved:
		return !ok
	case shareOpened:
		return !ok || now.Step == catalog.RehomingOpen
	case shareClosed:
		b.leader(from).View(func(m replica.Machine, _ uint64) { _, is = m.(*fsm.State).CaptureShare(id, now.Epoch) })
	case shareSealed:
		b.leader(3 - from).View(func(m replica.Machine, _ uint64) {
			for _, k := range m.(*fsm.State).Known() {
				is = is || k.ID == id && k.Version > 0
			}
		})
	}
	return is && now.Epoch > 0 || !ok && step > shareBegun
}

// Forwards go on while their source and their destination move: each message arrives once, and in order.
func TestForwardsGoOnWhileBothEndsMove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 3 })
		defer b.close()
		b.net.SetDelay(2*time.Millisecond, 0)
		b.wantVersion("n1", fsm.NewestVersion)
		to := b.createQueue(t.Context(), "n1", queue("to", false))
		source := queue("from", false)
		source.ForwardTo = "to"
		from := b.createQueue(t.Context(), "n1", source)
		const messages = 600
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range messages {
				o, err := b.all["n2"].r.Propose(t.Context(), reqOf(1, 1, i+1), fsm.Key{Entity: from.ID},
					&fsm.Enqueue{Messages: []fsm.Message{{Body: storedForm(nil, fmt.Sprintf("%05d", i))}}})
				if err != nil || o.Refusal != fsm.None {
					t.Errorf("send %d: %+v, %v", i, o, err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		third := 6 - to.Partitions[0] - from.Partitions[0]
		for _, move := range []struct {
			name string
			to   fsm.PartitionID
		}{{"from", third}, {"to", from.Partitions[0]}, {"from", to.Partitions[0]}} {
			time.Sleep(time.Second)
			if c, _, _ := b.all["n1"].r.Counts(t.Context(), to); c.Active < 50 {
				t.Errorf("before a move %+v are there", c)
			}
			b.rehome("n1", move.to, move.name)
		}
		<-sent
		b.until("all have arrived", func() string {
			if c, _, err := b.all["n1"].r.Counts(t.Context(), to); err != nil || c.Active != messages {
				left, _, _ := b.all["n1"].r.Counts(t.Context(), from)
				return fmt.Sprintf("%+v, %v, at the source %+v", c, err, left)
			}
			return ""
		})
		time.Sleep(time.Minute) // nothing comes late, and twice
		n := 0
		for i := 1; ; i++ {
			o, err := b.all["n1"].r.Propose(t.Context(), reqOf(0, 9, i), fsm.Key{Entity: to.ID}, &fsm.Lock{Max: 100, MaxBytes: 1 << 20, Delete: true})
			if err != nil || o.Refusal != fsm.None {
				t.Fatalf("%+v, %v", o, err)
			}
			if len(o.Locked) == 0 {
				break
			}
			for _, m := range o.Locked {
				if want := fmt.Sprintf("%05d", n); textOf(t, m.Body) != want || m.Seq != fsm.SequenceNumber(n+1) {
					t.Fatalf("message %d has the body %s, want %s", m.Seq, textOf(t, m.Body), want)
				}
				n++
			}
		}
		if n != messages {
			t.Errorf("%d messages of %d", n, messages)
		}
	})
}

// A backup is not taken while a queue moves. A move to where the queue is, and one of a topic, are none.
func TestABackupWaitsForMoves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 2 })
		defer b.close()
		b.wantVersion("n1", fsm.NewestVersion)
		d := b.createQueue(t.Context(), "n1", queue("orders", false))
		dir := b.all["n1"].dir
		if moves, err := dir.Rehome(t.Context(), "orders", d.Partitions[0], false); err != nil || len(moves) > 0 {
			t.Errorf("to where it is: %v, %v", moves, err)
		}
		if moves, err := dir.Rehome(t.Context(), "orders", 3-d.Partitions[0], true); err != nil || len(moves) != 1 || b.rehoming("n1") != "" {
			t.Errorf("a dry run: %v, %v, %s", moves, err, b.rehoming("n1"))
		}
		if _, err := dir.Rehome(t.Context(), "nobody", 0, false); !errors.Is(err, fsm.ErrNoEntity) {
			t.Errorf("no entity: %v", err)
		}
		if _, err := dir.Rehome(t.Context(), "orders", 3-d.Partitions[0], false); err != nil {
			t.Fatal(err)
		}
		if _, err := dir.CreateBackup(t.Context()); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("a backup during a move: %v", err)
		}
		b.until("the share has moved", func() string { return b.rehoming("n1") })
		backup, err := dir.CreateBackup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dir.DropBackup(t.Context(), backup)
	})
}

// A move is known to every node when it has begun. Whoever waits for its end would else take it for done.
func TestAMoveIsKnownWhenItHasBegun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 4)
		defer b.close()
		ctx := shortly(t, time.Hour)
		d := b.createQueue(ctx, "n1", queue("orders", false))
		b.net.SetDelay(20*time.Millisecond, 0)
		for _, via := range b.ids { // each moves it on, to where nothing of an earlier home must be dropped first
			if moves, err := b.all[via].dir.Rehome(ctx, "orders", d.Partitions[0]%4+1, false); err != nil || len(moves) != 1 {
				t.Fatalf("through %s: %v, %v", via, moves, err)
			}
			for _, id := range b.ids {
				v := b.all[id].dir.View()
				if r, ok := v.Rehoming(d.ID); ok && r.Active() || v.Entity("orders").Partitions[0] != d.Partitions[0] {
					continue
				}
				t.Errorf("%s does not know of the move that was begun through %s", id, via)
			}
			b.until("the move is over", func() string {
				for _, id := range b.ids {
					v := b.all[id].dir.View()
					if r, ok := v.Rehoming(d.ID); ok && r.Active() || v.Entity("orders").Partitions[0] == d.Partitions[0] {
						return "it is not"
					}
				}
				return ""
			})
			d = b.all["n1"].dir.View().Entity("orders")
		}
	})
}
