package partition

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// asker proposes by one name, and fails the test at a refusal.
type asker struct {
	b *brokers
	n uint64
}

func (a *asker) ask(ctx context.Context, k fsm.Key, c fsm.Command) fsm.Outcome {
	a.b.t.Helper()
	a.n++
	o, err := a.b.all["n1"].r.Propose(ctx, fsm.RequestID{Node: 905, Pump: 1, Counter: a.n}, k, c)
	if err != nil || o.Refusal != fsm.None {
		a.b.t.Fatalf("%T: %+v, %v", c, o, err)
	}
	return o
}

func message(text string) fsm.Message {
	return fsm.Message{MessageID: text, Body: storedForm(nil, text)}
}

// make1 creates an entity.
func (b *brokers) make1(ctx context.Context, kind fsm.EntityKind, name string, tune func(*fsm.Descriptor)) *fsm.Descriptor {
	b.t.Helper()
	d := queue(name, false)
	d.Kind = kind
	if tune != nil {
		tune(&d)
	}
	return b.createQueue(ctx, "n1", d)
}

// S-370: a topic is restored with its subscriptions, their rules and their messages: beside itself under another name, and under its own
// name into another cluster. It then takes messages by the same rules.
func TestOneTopicIsRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 4)
		defer b.close()
		ctx := shortly(t, 30*time.Minute)
		a := &asker{b: b}
		b.createQueue(ctx, "n1", queue("other", false))
		topic := b.make1(ctx, fsm.Topic, "news", func(d *fsm.Descriptor) { d.Partitioned = true })
		b.make1(ctx, fsm.Topic, "news2", nil) // its name begins with that of the other
		all := b.make1(ctx, fsm.Subscription, "news/Subscriptions/all", nil)
		none := b.make1(ctx, fsm.Subscription, "news/Subscriptions/none", nil)
		r := *none.Rule(fsm.DefaultRuleName)
		const sql = 1 // the kind of a SQL filter, a word of another room
		r.Name, r.Source.Kind, r.Source.Expression = "never", sql, "1 = 0"
		if _, err := b.all["n1"].dir.PutRule(ctx, none.ID, r, false); err != nil {
			t.Fatal(err)
		}
		if _, err := b.all["n1"].dir.DropRule(ctx, none.ID, fsm.DefaultRuleName); err != nil {
			t.Fatal(err)
		}
		for share := range topic.Partitions {
			k := fsm.Key{Entity: topic.ID, By: fsm.ByShare, Share: uint16(share)}
			for i := range 4 {
				a.ask(ctx, k, &fsm.Enqueue{Messages: []fsm.Message{message(fmt.Sprintf("%d-%d", share, i))}})
			}
			later := message(fmt.Sprintf("later-%d", share))
			later.ScheduledAt = fsm.Wall(time.Now().Add(time.Hour).UnixMilli())
			a.ask(ctx, k, &fsm.Enqueue{Messages: []fsm.Message{later}})
			k.Entity = all.ID
			got := a.ask(ctx, k, &fsm.Lock{Max: 3}).Locked
			a.ask(ctx, k, &fsm.Settle{Items: []fsm.SettleItem{{Token: got[0].Token, Verdict: fsm.Defer},
				{Token: got[1].Token, Verdict: fsm.Abandon}, {Token: got[2].Token, Verdict: fsm.Abandon}}})
		}
		names := []string{"", "/Subscriptions/all", "/Subscriptions/none"}
		want := map[string][]string{}
		for _, name := range names {
			want[name] = b.shown(ctx, b.all["n1"].dir.View().Entity("news"+name))
		}
		if len(want[""]) != 4 || len(want[names[1]]) != 16 || len(want[names[2]]) != 0 {
			t.Fatalf("before: %q", want)
		}
		rules := b.all["n1"].dir.View().Entity("news/Subscriptions/none").Rules
		got := b.take(ctx, "n1")

		same := func(b *brokers, root string) {
			t.Helper()
			v := b.all["n1"].dir.View()
			for _, name := range names {
				if now := b.shown(ctx, v.Entity(root+name)); !slices.Equal(now, want[name]) {
					t.Errorf("%s%s shows\n%s\nand showed\n%s", root, name, strings.Join(now, "\n"), strings.Join(want[name], "\n"))
				}
			}
			if now := v.Entity(root + names[2]).Rules; !reflect.DeepEqual(now, rules) {
				t.Errorf("the rules of %s are %+v, and were %+v", root, now, rules)
			}
			o := (&asker{b: b, n: 1000})
			o.ask(ctx, fsm.Key{Entity: v.Entity(root).ID, By: fsm.ByShare}, &fsm.Enqueue{Messages: []fsm.Message{message("new")}})
			if n, z := len(b.shown(ctx, v.Entity(root+names[1]))), len(b.shown(ctx, v.Entity(root+names[2]))); n != 17 || z != 0 {
				t.Errorf("after another message %s has %d messages behind its rule, and %d behind one that takes nothing", root, n, z)
			}
		}
		if r := b.putBack(ctx, got, RestoreOptions{Entity: "news", As: "copy"}); len(r.Entities) != 3 {
			t.Fatalf("%d entities came back", len(r.Entities))
		}
		same(b, "copy")
		for _, name := range names {
			if now := b.shown(ctx, b.all["n1"].dir.View().Entity("news"+name)); !slices.Equal(now, want[name]) {
				t.Errorf("news%s was changed by the restore of its copy", name)
			}
		}
		small := sized(t, 1, 6)
		defer small.close()
		small.putBack(ctx, got, RestoreOptions{Entity: "news"})
		same(small, "news")
		if n := small.all["n1"].dir.View().Len(); n != 3 {
			t.Errorf("%d entities are there", n)
		}
	})
}

// inTransit makes two queues that send to a third one, and backs them up while all their messages are on their way: forwards of
// "source" and transfers of "box". Nothing of them reaches the leader of the destination.
func inTransit(t *testing.T, ctx context.Context) (got taken, forwards, transfers []string) {
	t.Helper()
	b := sized(t, 3, 6)
	defer b.close()
	to := b.make1(ctx, fsm.Queue, "destination", nil)
	from := b.make1(ctx, fsm.Queue, "source", func(d *fsm.Descriptor) { d.ForwardTo = "destination" })
	box := b.make1(ctx, fsm.Queue, "box", nil)
	away := to.Partitions[0]
	if from.Partitions[0] == away || box.Partitions[0] == away {
		t.Fatal("they share a partition: the test shows nothing")
	}
	for p, id := range map[fsm.PartitionID]fsm.NodeID{away: "n1", from.Partitions[0]: "n2", box.Partitions[0]: "n2"} {
		b.until("a leader", func() string {
			if b.leader(p).Node() == id {
				return ""
			}
			return fmt.Sprint(b.nodes[b.leader(p).Node()].host.TransferLeadership(ctx, p, id))
		})
	}
	b.net.Swallow(func(from, _ fsm.NodeID, kind uint8, content []byte) bool {
		return from == "n2" && kind == KindPropose && bytes.HasPrefix(content, verbHead(away, 0))
	})
	a := &asker{b: b}
	for i := range 30 {
		forwards, transfers = append(forwards, fmt.Sprintf("f%02d", i)), append(transfers, fmt.Sprintf("t%02d", i))
		a.ask(ctx, fsm.Key{Entity: from.ID}, &fsm.Enqueue{Messages: []fsm.Message{message(forwards[i])}})
		a.ask(ctx, fsm.Key{Entity: box.ID}, &fsm.Transfer{To: to.ID, Messages: []fsm.Message{message(transfers[i])}})
	}
	a.ask(ctx, fsm.Key{Entity: box.ID}, &fsm.Enqueue{Messages: []fsm.Message{message("stays")}})
	time.Sleep(time.Second)
	got = b.take(ctx, "n1")
	moving := uint64(0)
	for _, img := range got.images {
		report, err := CheckImage(bytes.NewReader(img), eachMemBody)
		if err != nil {
			t.Fatal(err)
		}
		moving += report.InTransit
	}
	if moving == 0 {
		t.Fatal("nothing is in transit: the test shows nothing")
	}
	b.net.Swallow(nil)
	b.arrives(to, fsm.Main, time.Minute, b.texts(ctx, to, fsm.Main)...)
	return got, forwards, transfers
}

// S-362, S-370: messages in transit are moved anew, each once, when their queue is restored alone: to the entity that has the name of
// their destination. Where there is none they become dead letters, with the reason that senders know. Nothing is lost.
func TestMessagesInTransitAreRestoredAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx := shortly(t, 60*time.Minute)
		got, forwards, transfers := inTransit(t, ctx)
		small := sized(t, 1, 5)
		defer small.close()
		to := small.make1(ctx, fsm.Queue, "destination", nil)
		entity := func(r *Restoring) *fsm.Descriptor { return r.Entities[0] }
		from := entity(small.putBack(ctx, got, RestoreOptions{Entity: "source"}))
		small.arrives(to, fsm.Main, time.Minute, forwards...)
		box := entity(small.putBack(ctx, got, RestoreOptions{Entity: "box"}))
		small.arrives(to, fsm.Main, time.Minute, append(slices.Clone(forwards), transfers...)...)
		small.arrives(box, fsm.Main, time.Minute, "stays")
		for _, d := range []*fsm.Descriptor{from, box} {
			for _, sub := range []fsm.SubQueue{fsm.DeadLetter, fsm.TransferDeadLetter} {
				small.arrives(d, sub, time.Minute)
			}
		}
		small.arrives(from, fsm.Main, time.Minute)

		alone := sized(t, 1, 3)
		defer alone.close()
		from = entity(alone.putBack(ctx, got, RestoreOptions{Entity: "source"}))
		alone.arrives(from, fsm.DeadLetter, time.Minute, forwards...)
		box = entity(alone.putBack(ctx, got, RestoreOptions{Entity: "box"}))
		alone.arrives(box, fsm.TransferDeadLetter, time.Minute, transfers...)
		alone.arrives(box, fsm.Main, time.Minute, "stays")

		// All together: what the destination had not decided about goes on.
		whole := sized(t, 1, 7)
		defer whole.close()
		r := whole.putBack(ctx, got, RestoreOptions{})
		restored := map[string]*fsm.Descriptor{}
		for _, e := range r.Entities {
			restored[e.Name] = e
		}
		want := slices.Sorted(slices.Values(append(slices.Clone(forwards), transfers...)))
		whole.until("all have arrived, each once", func() string {
			if now := slices.Sorted(slices.Values(whole.texts(ctx, restored["destination"], fsm.Main))); !slices.Equal(now, want) {
				return fmt.Sprint(now)
			}
			return ""
		})
	})
}

// S-362, S-370: ids of duplicate detection and states of sessions come with one entity under another name.
func TestIDsAndSessionsAreRestoredAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 4)
		defer b.close()
		ctx := shortly(t, 30*time.Minute)
		a := &asker{b: b}
		once := b.make1(ctx, fsm.Queue, "once", func(d *fsm.Descriptor) { d.DetectDuplicates, d.Partitioned = true, true })
		ordered := b.make1(ctx, fsm.Queue, "ordered", func(d *fsm.Descriptor) { d.RequiresSession = true })
		share := func(d *fsm.Descriptor, i int) fsm.Key {
			return fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(i % len(d.Partitions))}
		}
		for i := range 40 {
			a.ask(ctx, share(once, i), &fsm.Enqueue{Messages: []fsm.Message{message(fmt.Sprintf("id-%02d", i))}})
		}
		for i := range 20 { // completed: their ids are all that is left of them
			got := a.ask(ctx, share(once, i), &fsm.Lock{Max: 1}).Locked
			a.ask(ctx, share(once, i), &fsm.Settle{Items: []fsm.SettleItem{{Token: got[0].Token, Verdict: fsm.Complete}}})
		}
		states := map[string]string{}
		for i := range 6 {
			id := fmt.Sprintf("s%d", i)
			m := message("first of " + id)
			m.HasSession, m.SessionID = true, id
			a.ask(ctx, fsm.Key{Entity: ordered.ID}, &fsm.Enqueue{Messages: []fsm.Message{m}})
			held := a.ask(ctx, fsm.Key{Entity: ordered.ID}, &fsm.AcceptSession{ID: id}).Session
			states[id] = strings.Repeat(id, 1+1000*i)
			a.ask(ctx, fsm.Key{Entity: ordered.ID}, &fsm.SetSessionState{Session: held, State: []byte(states[id])})
			if i%2 == 0 { // of others nothing is left but the state
				got := a.ask(ctx, fsm.Key{Entity: ordered.ID}, &fsm.Lock{Session: held, Max: 1}).Locked
				a.ask(ctx, fsm.Key{Entity: ordered.ID}, &fsm.Settle{Session: held, Items: []fsm.SettleItem{{Token: got[0].Token, Verdict: fsm.Complete}}})
			}
		}
		got := b.take(ctx, "n3")
		copyOf := func(name string) *fsm.Descriptor {
			return b.putBack(ctx, got, RestoreOptions{Entity: name, As: name + "-copy"}).Entities[0]
		}
		again := copyOf("once")
		for i := range 40 {
			o := a.ask(ctx, share(again, i), &fsm.Enqueue{Messages: []fsm.Message{message(fmt.Sprintf("id-%02d", i))}})
			if len(o.Duplicate) != 1 || !o.Duplicate[0] {
				t.Errorf("id-%02d is not known: %+v", i, o)
			}
		}
		if n := len(b.shown(ctx, again)); n != 20 {
			t.Errorf("%d messages, want 20", n)
		}
		d := copyOf("ordered")
		for _, id := range slices.Sorted(maps.Keys(states)) {
			held := a.ask(ctx, fsm.Key{Entity: d.ID}, &fsm.AcceptSession{ID: id}).Session
			q, err := b.all["n1"].r.Query(ctx, fsm.Key{Entity: d.ID}, &fsm.GetSessionState{Session: held})
			if err != nil || string(q.State) != states[id] {
				t.Errorf("state of %s: %d bytes, want %d, %v", id, len(q.State), len(states[id]), err)
			}
		}
		if n := len(b.shown(ctx, d)); n != 3 {
			t.Errorf("%d messages of sessions, want 3", n)
		}
	})
}
