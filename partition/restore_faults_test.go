package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// filled is a cluster with messages in each state, and the backup of it.
type filled struct {
	backup        taken
	before, after []string            // of the stream that is forwarded: acknowledged before the backup, and before its end
	held          map[string][]string // what each entity that lies still shows, by its name
}

// fill makes entities, fills them under a stream that is forwarded, and takes a backup.
func fill(t *testing.T) filled {
	b := sized(t, 3, 4)
	defer b.close()
	b.net.SetDelay(2*time.Millisecond, 0)
	ctx := shortly(t, 30*time.Minute)
	b.createQueue(ctx, "n1", queue("destination", true))
	src := queue("source", false)
	src.ForwardTo = "destination"
	from := b.createQueue(ctx, "n1", src)
	spread := b.createQueue(ctx, "n1", queue("spread", true))
	for i := range 60 { // of a size that only some fit a page
		k := fsm.Key{Entity: spread.ID, By: fsm.ByShare, Share: uint16(i % len(spread.Partitions))}
		text := fmt.Sprintf("%02d %s", i, strings.Repeat("x", 60_000))
		o, err := b.all["n1"].r.Propose(ctx, fsm.RequestID{Node: 903, Pump: 1, Counter: uint64(i + 1)}, k,
			&fsm.Enqueue{Messages: []fsm.Message{{MessageID: text[:2], Body: storedForm(nil, text)}}})
		if err != nil || o.Refusal != fsm.None {
			t.Fatalf("send: %+v, %v", o, err)
		}
	}
	s := b.stream(from, "n1")
	time.Sleep(2 * time.Second)
	f := filled{before: s.acknowledged(), held: map[string][]string{"spread": b.shown(ctx, spread)}}
	f.backup = b.take(ctx, "n1")
	close(s.stop)
	<-s.done
	f.after = s.acknowledged()
	return f
}

// shown lists what is in all subqueues of an entity, with numbers, counts and states.
func (b *brokers) shown(ctx context.Context, d *fsm.Descriptor) (out []string) {
	b.t.Helper()
	for sub := fsm.Main; sub <= fsm.TransferDeadLetter; sub++ {
		for share := range d.Partitions {
			k := fsm.Key{Entity: d.ID, Sub: sub, By: fsm.ByShare, Share: uint16(share)}
			for from := fsm.SequenceNumber(0); ; {
				a, err := b.all["n1"].r.Query(ctx, k, &fsm.Browse{From: from, Max: 1000, MaxBytes: 1 << 20})
				if err != nil || a.Refusal != fsm.None && a.Refusal != fsm.InvalidOperation {
					b.t.Fatalf("browse: %+v, %v", a, err)
				}
				if len(a.Messages) == 0 {
					break
				}
				for i := range a.Messages {
					m := &a.Messages[i]
					text := textOf(b.t, m.Body)
					out = append(out, fmt.Sprintf("%d %d at %d, expires %d, %d attempts, state %d, %s %s: %s of %d bytes", sub, m.Seq,
						m.EnqueuedAt, m.ExpiresAt, m.Attempts, m.State, m.Reason, m.Source, text[:min(len(text), 40)], len(text)))
				}
				from = a.Messages[len(a.Messages)-1].Seq + 1
			}
		}
	}
	slices.Sort(out)
	return out
}

// restoredAs compares a restored cluster with what a backup had to have.
func (b *brokers) restoredAs(ctx context.Context, f filled) {
	b.t.Helper()
	v := b.all["n1"].dir.View()
	for _, name := range slices.Sorted(maps.Keys(f.held)) {
		e := v.Entity(name)
		if e == nil || e.Suspended {
			b.t.Fatalf("%s came back as %+v", name, e)
		}
		now, was := b.shown(ctx, e), f.held[name]
		if !slices.Equal(now, was) {
			b.t.Errorf("%s shows %d messages, and showed %d: %.300q and %.300q", name, len(now), len(was), now, was)
		}
	}
	b.eachOnce(v.Entity("source"), v.Entity("destination"), f.before, f.after)
}

// lead has a node lead every partition and the catalog.
func (b *brokers) lead(ctx context.Context, id fsm.NodeID) {
	b.t.Helper()
	for p := fsm.CatalogPartition; int(p) <= b.partitions; p++ {
		b.until(fmt.Sprintf("%s leads partition %d", id, p), func() string {
			leader := b.leader(p).Node()
			if leader == id {
				return ""
			}
			return fmt.Sprint(b.all[leader].host.TransferLeadership(ctx, p, id))
		})
	}
}

// S-361, S-364, S-365: the leader of a partition dies in each stage of a restore. The restore comes to its end by the survivors, and
// nothing is missing or doubled. The node that died comes back and agrees.
func TestARestoreOutlivesALeader(t *testing.T) {
	for _, stage := range []string{"begin", "pages", "end"} {
		t.Run(stage, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := fill(t)
				b := sized(t, 3, 5)
				defer b.close()
				b.net.SetDelay(2*time.Millisecond, 0)
				ctx := shortly(t, 30*time.Minute)
				b.lead(ctx, "n2") // n1 is asked by the test, and lives
				d := b.all["n1"].dir
				var victim fsm.NodeID
				strike := func(p fsm.PartitionID) {
					if n := b.leader(p).Node(); victim == "" && n != "n1" {
						victim = n
						b.kill(n)
					}
				}
				watch := func(when func() (fsm.PartitionID, bool)) (wait func()) {
					done := make(chan struct{})
					go func() {
						defer close(done)
						for ctx.Err() == nil {
							if p, now := when(); now {
								strike(p)
								return
							}
							time.Sleep(time.Millisecond)
						}
					}()
					return func() { <-done }
				}
				wait := func() {}
				if stage == "begin" {
					wait = watch(func() (fsm.PartitionID, bool) { return fsm.CatalogPartition, d.View().Len() == 2 })
				}
				r, err := d.BeginRestore(ctx, f.backup.entities, RestoreOptions{})
				if err != nil {
					t.Fatal(err)
				}
				wait()
				pages := 0
				for _, p := range r.Partitions {
					err := d.RestoreImage(ctx, r, p, bytes.NewReader(f.backup.images[p]), eachMemBody, func(at Progress) {
						if pages++; stage != "pages" || pages < 6 || victim != "" {
							return
						}
						name, share, _ := strings.Cut(at.Share, "/")
						strike(d.View().Entity(name).Partitions[share[0]-'0'])
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				wait = func() {}
				if stage == "end" {
					wait = watch(func() (fsm.PartitionID, bool) {
						e := d.View().ByID(r.Entities[0].ID)
						return e.Partitions[0], !e.Suspended
					})
				}
				if err := d.FinishRestore(ctx, r); err != nil {
					t.Fatal(err)
				}
				wait()
				if victim == "" {
					t.Fatal("nobody died: the test shows nothing")
				}
				t.Logf("%s died; %d pages", victim, pages)
				b.restoredAs(ctx, f)
				b.revive(victim)
				b.lead(ctx, victim)
				b.restoredAs(ctx, f)
			})
		})
	}
}

// S-364, S-367: a restore that cannot begin because most nodes are gone says so and leaves nothing, if the nodes come back in time. Else
// it says what is left, and is refused until that is deleted. Then it begins anew, and is whole.
func TestARestoreThatCannotBeginLeavesNothing(t *testing.T) {
	for name, away := range map[string]time.Duration{"for a moment": 20 * time.Second, "for long": 5 * time.Minute} {
		t.Run("most nodes are gone "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := fill(t)
				b := sized(t, 3, 5)
				defer b.close()
				b.net.SetDelay(2*time.Millisecond, 0)
				ctx := shortly(t, 60*time.Minute)
				d := b.all["n1"].dir
				go func() {
					for d.View().Len() < 2 {
						time.Sleep(time.Millisecond)
					}
					b.net.Isolate("n1", true)
					time.Sleep(away)
					b.net.Heal()
				}()
				began := time.Now()
				_, err := d.BeginRestore(shortly(t, 10*time.Second), f.backup.entities, RestoreOptions{})
				if !errors.Is(err, fsm.ErrUnavailable) && !errors.Is(err, fsm.ErrUnknown) {
					t.Fatalf("a restore without a majority: %v", err)
				}
				t.Logf("after %v: %v", time.Since(began), err)
				b.until("the network is back", func() string {
					if time.Since(began) < away+time.Second {
						return "not yet"
					}
					if err := d.catchUp(shortly(t, time.Second)); err != nil {
						return err.Error()
					}
					return ""
				})
				left := d.View().Len()
				switch {
				case away < undoTimeout && left > 0:
					t.Fatalf("%s is left", someNames(d.View()))
				case away > undoTimeout:
					if left == 0 || !strings.Contains(err.Error(), "left suspended: resume and delete it") {
						t.Fatalf("%d entities are left, and the error is %v", left, err)
					}
					if _, err := d.BeginRestore(ctx, f.backup.entities, RestoreOptions{}); !errors.Is(err, ErrNotEmpty) {
						t.Errorf("a second attempt: %v", err)
					}
					for _, e := range described(d.View()) {
						_, err := d.Suspend(ctx, e.ID, fsm.Active) // else nobody may delete it
						if err := errors.Join(err, d.Delete(ctx, e.Name)); err != nil {
							t.Fatal(err)
						}
					}
				}
				b.putBack(ctx, f.backup, RestoreOptions{})
				b.restoredAs(ctx, f)
			})
		})
	}
}
