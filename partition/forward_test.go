package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// dataSection begins a data section, whose size of four bytes and bytes follow (AMQP 1.0 §3.2.6).
const dataSection = "\x00\x53\x75\xb0"

// storedForm is a stored message with one data section, and the properties section if there is one.
func storedForm(properties []byte, text string) []byte {
	var m stored.Message
	m.Set(stored.Properties, properties != nil)
	b := append(append(m.AppendHead(nil), properties...), dataSection...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// textOf returns the text of a stored message that has nothing but a data section.
func textOf(t testing.TB, body []byte) string {
	t.Helper()
	m, err := stored.Parse(body)
	if err != nil || !bytes.HasPrefix(m.Bare, []byte(dataSection)) {
		t.Fatalf("stored message %x: %v", body, err)
	}
	return string(m.Bare[len(dataSection)+4:])
}

// forwarding makes a cluster with two partitions, and on them a source that forwards to a destination.
func forwarding(t *testing.T, tune func(from, to *fsm.Descriptor)) (b *brokers, from, to *fsm.Descriptor) {
	t.Helper()
	b = newBrokers(t, 3)
	src, dst := queue("source", false), queue("destination", false)
	src.ForwardTo = "destination"
	if tune != nil {
		tune(&src, &dst)
	}
	ctx := shortly(t, time.Minute)
	to = b.createQueue(ctx, "n1", dst)
	from = b.createQueue(ctx, "n1", src)
	if from.Partitions[0] == to.Partitions[0] {
		t.Fatal("source and destination share a partition: the test shows nothing")
	}
	return b, from, to
}

func (b *brokers) put(ctx context.Context, d *fsm.Descriptor, id fsm.RequestID, texts ...string) {
	b.t.Helper()
	c := &fsm.Enqueue{}
	for _, s := range texts {
		c.Messages = append(c.Messages, fsm.Message{MessageID: s, Body: storedForm(nil, s)})
	}
	b.enqueue(ctx, d, id, c)
}

func (b *brokers) enqueue(ctx context.Context, d *fsm.Descriptor, id fsm.RequestID, c *fsm.Enqueue) {
	b.t.Helper()
	for _, n := range b.ids {
		if b.all[n] == nil {
			continue
		}
		o, err := b.all[n].r.Propose(ctx, id, fsm.Key{Entity: d.ID}, c)
		if err != nil || o.Refusal != fsm.None {
			b.t.Fatalf("send: %+v, %v", o, err)
		}
		return
	}
}

// texts returns the messages of a subqueue in their order, through any node that runs.
func (b *brokers) texts(ctx context.Context, d *fsm.Descriptor, sub fsm.SubQueue) (out []string) {
	b.t.Helper()
	for _, n := range b.ids {
		if b.all[n] == nil {
			continue
		}
		for share := range d.Partitions {
			k := fsm.Key{Entity: d.ID, Sub: sub, By: fsm.ByShare, Share: uint16(share)}
			a, err := b.all[n].r.Query(ctx, k, &fsm.Browse{Max: 1000, MaxBytes: 1 << 24})
			if err != nil || a.Refusal != fsm.None {
				b.t.Fatalf("browse: %+v, %v", a, err)
			}
			for i := range a.Messages {
				out = append(out, textOf(b.t, a.Messages[i].Body))
			}
		}
		return out
	}
	return nil
}

// arrives waits until a subqueue holds exactly those messages in that order.
func (b *brokers) arrives(d *fsm.Descriptor, sub fsm.SubQueue, within time.Duration, want ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), within+time.Minute)
	defer cancel()
	var got []string
	for began := time.Now(); time.Since(began) < within; time.Sleep(50 * time.Millisecond) {
		if got = b.texts(ctx, d, sub); slices.Equal(got, want) {
			return
		}
	}
	b.t.Fatalf("%s %q holds %q after %v, want %q", d.Name, sub, got, within, want)
}

func numbered(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("m%03d", i))
	}
	return out
}

// S-206, S-212: messages move from one partition to another, in order, once, and leave nothing behind.
func TestForwardMovesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to := forwarding(t, nil)
		defer b.close()
		all := numbered(700)
		for i := 0; i < len(all); i += 70 {
			b.put(t.Context(), from, reqOf(0, 1, i+1), all[i:i+70]...)
		}
		b.arrives(to, fsm.Main, time.Minute, all...)
		b.arrives(from, fsm.Main, time.Minute)
		b.arrives(from, fsm.DeadLetter, time.Minute)
		b.put(t.Context(), from, reqOf(0, 1, 1000), "later")
		began := time.Now()
		b.arrives(to, fsm.Main, time.Minute, append(all, "later")...)
		if d := time.Since(began); d > time.Second {
			t.Errorf("one message took %v", d)
		}
	})
}

// S-206, S-209: each message that was forwarded or refused is told once, with where it came from and where it went.
func TestForwardedMessagesAreTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to := forwarding(t, nil)
		defer b.close()
		var mu sync.Mutex
		told := map[string]Forwarded{}
		for _, n := range b.ids {
			b.all[n].r.OnForwarded(func(f *Forwarded) {
				mu.Lock()
				defer mu.Unlock()
				text := textOf(t, f.Body)
				if _, twice := told[text]; twice {
					t.Errorf("%s is told twice", text)
				}
				told[text] = *f
			})
		}
		began := time.Now()
		b.put(t.Context(), from, reqOf(0, 1, 1), "taken")
		b.arrives(to, fsm.Main, time.Minute, "taken")
		off := *to
		off.Status = fsm.SendDisabled
		if _, err := b.all["n1"].dir.Update(t.Context(), off); err != nil {
			t.Fatal(err)
		}
		b.put(t.Context(), from, reqOf(0, 1, 2), "refused")
		b.arrives(from, fsm.DeadLetter, time.Minute, "refused")
		mu.Lock()
		defer mu.Unlock()
		for text, refusal := range map[string]fsm.Refusal{"taken": fsm.None, "refused": fsm.EntityDisabled} {
			f := told[text]
			if f.From != from.ID || f.To != to.ID || f.Sub != fsm.Main || f.Refusal != refusal || f.Number == 0 ||
				f.Taken.Before(began) || f.Taken.After(time.Now()) {
				t.Errorf("of %s: %+v", text, f)
			}
		}
		if len(told) != 2 {
			t.Errorf("%d messages are told, want 2", len(told))
		}
	})
}

// S-209: what the destination will not have is dead-lettered at the source, and what comes after it was
// mended moves again.
func TestForwardToADestinationThatRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, b *brokers, to *fsm.Descriptor)
		mend  func(t *testing.T, b *brokers, to *fsm.Descriptor) *fsm.Descriptor
	}{
		"disabled": {
			func(t *testing.T, b *brokers, to *fsm.Descriptor) {
				off := *to
				off.Status = fsm.SendDisabled
				if _, err := b.all["n1"].dir.Update(t.Context(), off); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, b *brokers, to *fsm.Descriptor) *fsm.Descriptor {
				on := *to
				on.Status, on.Version = fsm.Active, 0 // whatever it is by now
				d, err := b.all["n1"].dir.Update(t.Context(), on)
				if err != nil {
					t.Fatal(err)
				}
				return d
			},
		},
		"deleted": {
			func(t *testing.T, b *brokers, to *fsm.Descriptor) {
				if err := b.all["n1"].dir.Delete(t.Context(), to.Name); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, b *brokers, to *fsm.Descriptor) *fsm.Descriptor {
				return b.createQueue(t.Context(), "n1", queue(to.Name, false))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, from, to := forwarding(t, nil)
				defer b.close()
				b.put(t.Context(), from, reqOf(0, 1, 1), "early")
				b.arrives(to, fsm.Main, time.Minute, "early")
				c.spoil(t, b, to)
				b.put(t.Context(), from, reqOf(0, 1, 2), "refused")
				b.arrives(from, fsm.DeadLetter, time.Minute, "refused")
				after := c.mend(t, b, to)
				b.put(t.Context(), from, reqOf(0, 1, 3), "late")
				want := []string{"early", "late"}
				if after.ID != to.ID {
					want = want[1:]
				}
				b.arrives(after, fsm.Main, time.Minute, want...)
				b.arrives(from, fsm.DeadLetter, time.Minute, "refused")
			})
		})
	}
}

// S-209, S-277: a destination without a majority is no refusal: the move is tried again with growing
// pauses, across a new leader of the source too, and happens once.
func TestForwardWaitsForItsDestination(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to := forwarding(t, nil)
		defer b.close()
		p := to.Partitions[0]
		var sick []*replica.Replica
		for _, id := range b.ids[:2] {
			sick = append(sick, b.nodes[id].host.Replica(p))
		}
		silent := func(yes bool) {
			for _, r := range sick {
				r.SetStalled(yes)
			}
			b.net.Swallow(func(_, _ fsm.NodeID, kind uint8, msg []byte) bool {
				if !yes || kind != KindRaft {
					return false
				}
				call, err := raftnet.ParseCall(msg)
				return err == nil && call.Group == p
			})
		}
		silent(true)
		time.Sleep(5 * time.Second)
		b.put(t.Context(), from, reqOf(0, 1, 1), "a", "b", "c")
		time.Sleep(40 * time.Second)
		if err := b.leader(from.Partitions[0]).Transfer(shortly(t, 10*time.Second),
			b.others(b.leader(from.Partitions[0]).Node())[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if dead := b.texts(shortly(t, time.Minute), from, fsm.DeadLetter); len(dead) > 0 {
			t.Errorf("dead-lettered: %q", dead)
		}
		silent(false)
		b.arrives(to, fsm.Main, 3*time.Minute, "a", "b", "c")
		b.arrives(from, fsm.Main, time.Minute)
	})
}

// crowded makes a cluster whose partitions have few places: a source and its destination, and a queue beside the source.
func crowded(t *testing.T, places, reserved int) (b *brokers, from, to, aside *fsm.Descriptor) {
	t.Helper()
	b = newBrokersAs(t, 3, func(b *brokers) {
		b.tune = func(c *Config) { c.MaxPendingRequests, c.ReservedRequests = places, reserved }
	})
	ctx := shortly(t, time.Minute)
	src := queue("source", false)
	src.ForwardTo = "destination"
	to = b.createQueue(ctx, "n1", queue("destination", false))
	from = b.createQueue(ctx, "n1", src)
	aside = b.createQueue(ctx, "n1", queue("aside", false))
	for i := 0; aside.Partitions[0] != from.Partitions[0]; i++ {
		aside = b.createQueue(ctx, "n1", queue(fmt.Sprintf("aside%d", i), false))
	}
	return b, from, to, aside
}

// sendOf is the request that sends one message.
func sendOf(d *fsm.Descriptor, id fsm.RequestID, text string) fsm.Request {
	return fsm.Request{ID: id, Entity: d.ID,
		Command: &fsm.Enqueue{Messages: []fsm.Message{{MessageID: text, Body: storedForm(nil, text)}}}}
}

// S-277, A21: clients that take every place of a partition as soon as it is free do not hold its forwarders up. A
// forwarder that was refused even once would pause for minSourcePause.
func TestAForwarderHasAPlaceInACrowd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to, aside := crowded(t, 4, 1)
		defer b.close()
		leader := b.leader(from.Partitions[0])
		b.nodes[leader.Node()].delay.Store(int64(5 * time.Millisecond))
		var mu sync.Mutex
		sent, told := map[string]time.Time{}, map[string]time.Time{}
		for _, n := range b.ids {
			b.all[n].r.OnForwarded(func(f *Forwarded) {
				mu.Lock()
				defer mu.Unlock()
				told[textOf(t, f.Body)] = time.Now()
			})
		}
		ctx, stop := context.WithCancel(shortly(t, 5*time.Minute))
		defer stop()
		var clients sync.WaitGroup
		defer clients.Wait()
		defer stop()
		var refused atomic.Int64
		for client := range 12 {
			clients.Go(func() {
				for n := 1; ctx.Err() == nil; n++ {
					_, err := leader.Propose(ctx, sendOf(aside, reqOf(9, client+1, n), "x"))
					if errors.Is(err, fsm.ErrBusy) {
						refused.Add(1)
						time.Sleep(time.Millisecond)
					} else if err != nil {
						return
					}
				}
			})
		}
		want := numbered(40)
		for i, text := range want {
			_, err := leader.Propose(ctx, sendOf(from, reqOf(8, 1, i+1), text))
			for ; errors.Is(err, fsm.ErrBusy); _, err = leader.Propose(ctx, sendOf(from, reqOf(8, 1, i+1), text)) {
				time.Sleep(700 * time.Microsecond)
			}
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			sent[text] = time.Now()
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(minSourcePause)
		mu.Lock()
		for _, text := range want {
			if at, is := told[text]; !is || at.Sub(sent[text]) >= minSourcePause {
				t.Errorf("%s was sent at %v, and is forwarded at %v", text, sent[text], at)
			}
		}
		mu.Unlock()
		if refused.Load() == 0 {
			t.Error("the partition was never busy: the test shows nothing")
		}
		b.arrives(to, fsm.Main, time.Second, want...)
	})
}

// S-277: a forwarder that is refused because its own partition has no place at all asks again soon. The partition is
// full for two seconds; pauses that grow would begin with one second and go on with four.
func TestASourceThatIsBusyIsAskedAgainSoon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to, aside := crowded(t, 4, 1)
		defer b.close()
		ctx := shortly(t, time.Minute)
		p := from.Partitions[0]
		leader := b.leader(p)
		for _, id := range b.ids {
			b.wantVersion(id, fsm.NewestVersion) // there are holds from some version on
		}
		b.holdAll(ctx, 7, fsm.MaxHold)
		want := numbered(3)
		b.put(ctx, from, reqOf(8, 1, 1), want...)
		// The forwarder asks once in each heldPause now. The partition fills between two of these moments.
		time.Sleep(10*heldPause + heldPause/2)

		release := b.nodes[leader.Node()].disks[p].log.hang()
		var all []*proposed
		for i := range 5 { // one in flight, four wait
			all = append(all, start(ctx, leader, sendOf(aside, reqOf(9, 2, i+1), "x")))
			synctest.Wait()
		}
		end := fsm.Request{Command: &fsm.HoldForwards{Hold: 7}}
		all = append(all, start(ctx, leader, end)) // in the place that is reserved
		synctest.Wait()
		if _, err := leader.Propose(ctx, end); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("there is a place for a forwarder: %v", err)
		}
		time.Sleep(2 * time.Second)
		for i, p := range all {
			if p.over() {
				t.Errorf("proposal %d has ended: %v", i, p.err)
			}
		}
		release()
		b.arrives(to, fsm.Main, maxSourcePause+500*time.Millisecond, want...)
		for i, p := range all {
			if <-p.done; p.err != nil || p.outcome.Refusal != fsm.None {
				t.Errorf("proposal %d: %+v, %v", i, p.outcome, p.err)
			}
		}
	})
}

// S-277: clients ask again after whole seconds. The pauses of a forwarder end at other moments of a second, too.
func TestSourcePausesMeetNoRhythm(t *testing.T) {
	const parts = 10
	var hit [parts]int
	for range 1000 {
		d := sourcePause()
		if d < minSourcePause || d >= maxSourcePause {
			t.Fatalf("a pause of %v", d)
		}
		hit[d%time.Second*parts/time.Second]++
	}
	for i, n := range hit {
		if n == 0 {
			t.Errorf("of 1000 pauses none ends in part %d of %d of a second", i+1, parts)
		}
	}
}

// S-277.
func TestMovePausesGrow(t *testing.T) {
	want := []time.Duration{time.Second, 4 * time.Second, 9 * time.Second, 16 * time.Second,
		25 * time.Second, 36 * time.Second, 49 * time.Second, time.Minute, time.Minute}
	for i, w := range want {
		if got := movePause(i + 1); got != w {
			t.Errorf("after %d failures %v, want %v", i+1, got, w)
		}
	}
	if got := movePause(1 << 20); got != time.Minute {
		t.Errorf("after very many failures %v", got)
	}
}

// S-211, S-313: into a partitioned queue each session goes to its own share.
func TestForwardIntoShares(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, from, to := forwarding(t, func(_, to *fsm.Descriptor) {
			to.Partitioned, to.RequiresSession = true, true
		})
		defer b.close()
		c := &fsm.Enqueue{}
		for i := range 40 {
			id := fmt.Sprint("session-", i%8)
			text := fmt.Sprint(id, "/", i)
			// properties with the group-id alone, in its place
			props := []byte{0x00, 0x53, 0x73, 0xc0, byte(len(id) + 13), 11, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40,
				0x40, 0x40, 0x40, 0x40, 0xa1, byte(len(id))}
			c.Messages = append(c.Messages, fsm.Message{SessionID: id, HasSession: true,
				Body: storedForm(append(props, id...), text)})
		}
		b.enqueue(t.Context(), from, reqOf(0, 1, 1), c)
		k := fsm.Key{Entity: to.ID, By: fsm.ByShare}
		seen := 0
		for began := time.Now(); seen < 40 && time.Since(began) < time.Minute; time.Sleep(time.Second) {
			seen = 0
			for share := range to.Partitions {
				k.Share = uint16(share)
				a, err := b.all["n2"].r.Query(t.Context(), k, &fsm.Browse{Max: 1000, MaxBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				for i := range a.Messages {
					seen++
					body := string(a.Messages[i].Body)
					at := strings.Index(body, "session-")
					id := body[at : at+len("session-0")]
					if want := fsm.KeyShare(id, len(to.Partitions)); want != share {
						t.Errorf("session %q is in share %d, not %d", id, share, want)
					}
				}
			}
		}
		if seen != 40 {
			t.Errorf("%d of 40 arrived", seen)
		}
	})
}

// S-212, S-311, T-196: whoever is killed at whichever entry of either log, each message arrives once. The
// victim leads the source or the destination; the entry is counted from the one that stores the messages.
func TestForwardSurvivesACrashAtEveryEntry(t *testing.T) {
	simulatesLong(t)
	const most = 14
	const least = most / 2
	for _, victim := range []string{"source", "destination"} {
		hit := 0
		for at := range most {
			bubble(t, func(t *testing.T) {
				b, from, to := forwarding(t, nil)
				defer b.close()
				d := from
				if victim == "destination" {
					d = to
				}
				r := b.leader(d.Partitions[0])
				b.leader(from.Partitions[0])
				time.Sleep(2 * time.Second)
				base := r.Applied()
				all := numbered(12)
				done := make(chan struct{})
				crash := make(chan struct{})
				go func() { // watches the log as closely as a scheduler can
					defer close(done)
					for range 200_000 {
						if r.Applied() >= base+uint64(at) {
							close(crash)
							return
						}
						time.Sleep(20 * time.Microsecond)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				sent := make(chan struct{})
				via := b.all[b.others(r.Node())[0]].r
				go func() {
					defer close(sent)
					for i, s := range all {
						time.Sleep(50 * time.Millisecond) // so that each is an entry at the destination
						c := &fsm.Enqueue{Messages: []fsm.Message{{MessageID: s, Body: storedForm(nil, s)}}}
						o, err := via.Propose(ctx, reqOf(0, 1, i+1), fsm.Key{Entity: from.ID}, c)
						if err != nil || o.Refusal != fsm.None {
							t.Errorf("send: %+v, %v", o, err)
						}
					}
				}()
				select {
				case <-crash:
					hit++
					b.kill(r.Node())
				case <-done:
				}
				<-done
				<-sent
				if b.all[r.Node()] == nil {
					time.Sleep(time.Duration(at%3) * time.Second)
					b.revive(r.Node())
				}
				b.arrives(to, fsm.Main, 3*time.Minute, all...)
				b.arrives(from, fsm.Main, time.Minute)
				b.arrives(from, fsm.DeadLetter, time.Minute)
			})
			if t.Failed() {
				t.Fatalf("%s, entry %d", victim, at)
			}
		}
		if hit < least {
			t.Errorf("the leader of the %s was killed %d times only", victim, hit)
		}
	}
}

// S-257, A22: an entity that nobody uses is deleted with all its shares; one that is used stays.
func TestIdleEntityIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		ctx := shortly(t, time.Hour)
		idle, used := queue("idle", true), queue("used", false)
		idle.AutoDeleteOnIdle, used.AutoDeleteOnIdle = 60_000, 60_000
		b.createQueue(ctx, "n1", idle)
		d := b.createQueue(ctx, "n1", used)
		for i := range 12 { // three times the limit, each pause a quarter of it
			time.Sleep(15 * time.Second)
			b.put(ctx, d, reqOf(0, 1, i+1), "x")
		}
		if _, err := b.all["n2"].dir.Get(ctx, "idle"); !errors.Is(err, fsm.ErrNoEntity) {
			t.Errorf("the idle queue is there: %v", err)
		}
		if _, err := b.all["n2"].dir.Get(ctx, "used"); err != nil {
			t.Errorf("the used queue: %v", err)
		}
	})
}
