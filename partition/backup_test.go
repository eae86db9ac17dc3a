package partition

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// sized makes a cluster of so many nodes and partitions whose nodes know backups.
func sized(t *testing.T, nodes, partitions int) *brokers {
	b := &brokers{testCluster: newTestCluster(t, nodes), all: map[fsm.NodeID]*broker{}, partitions: partitions,
		lifeOf: map[fsm.NodeID]int{}}
	b.machine = realMachine
	for i, id := range b.ids {
		b.cfg = func(c *Config) { c.Incarnation = fsm.Incarnation(100 + i) }
		b.join(id, b.ids)
	}
	b.until("there is a catalog", func() string {
		if v := b.all["n1"].dir.View(); v == nil || len(v.Groups()) < partitions {
			return "none"
		}
		return ""
	})
	b.wantVersion("n1", fsm.NewestVersion)
	return b
}

// taken is a backup as it lies in files.
type taken struct {
	entities BackedUpEntities
	images   map[fsm.PartitionID][]byte
}

// take reads a whole backup through a node.
func (b *brokers) take(ctx context.Context, via fsm.NodeID) taken {
	b.t.Helper()
	d := b.all[via].dir
	made, err := d.CreateBackup(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.read(ctx, d, made)
}

func (b *brokers) read(ctx context.Context, d *Directory, made *Backup) taken {
	b.t.Helper()
	out := taken{images: map[fsm.PartitionID][]byte{}}
	text, err := json.Marshal(BackedUpEntities{Format: FormatOfEntities, Entities: made.Entities})
	if err := errors.Join(err, json.Unmarshal(text, &out.entities)); err != nil {
		b.t.Fatal(err)
	}
	for _, p := range made.Partitions {
		var img bytes.Buffer
		if err := d.WriteImage(ctx, made, p.ID, &img); err != nil {
			b.t.Fatal(err)
		}
		report, err := CheckImage(bytes.NewReader(img.Bytes()), eachMemBody)
		if err != nil || report.Index != p.Index || report.Partition != p.ID {
			b.t.Fatalf("image of partition %d at %d: %+v, %v", p.ID, p.Index, report, err)
		}
		out.images[p.ID] = img.Bytes()
	}
	d.DropBackup(ctx, made)
	var none bytes.Buffer
	if err := d.WriteImage(ctx, made, made.Partitions[0].ID, &none); err == nil {
		b.t.Fatal("a backup that was given up is read")
	}
	return out
}

// putBack restores a backup. The first image is begun twice: the first time it breaks off.
func (b *brokers) putBack(ctx context.Context, from taken, o RestoreOptions) *Restoring {
	b.t.Helper()
	d := b.all[b.ids[0]].dir
	r, err := d.BeginRestore(ctx, from.entities, o)
	if err != nil {
		b.t.Fatal(err)
	}
	quiet := func(Progress) {}
	for i, p := range r.Partitions {
		img := from.images[p]
		if i == 0 {
			broken := io.MultiReader(bytes.NewReader(img), &failingReader{errors.New("broken pipe")})
			short := func(r io.Reader, each func(uint64, uint32, []byte) error) error {
				n := 0
				return eachMemBody(io.LimitReader(r, int64(len(img))), func(index uint64, offset uint32, body []byte) error {
					if n++; n > 20 {
						return errors.New("broken pipe")
					}
					return each(index, offset, body)
				})
			}
			if err := d.RestoreImage(ctx, r, p, broken, short, quiet); err == nil {
				b.t.Fatal("half an image is restored")
			}
		}
		if err := d.RestoreImage(ctx, r, p, bytes.NewReader(img), eachMemBody, quiet); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := d.FinishRestore(ctx, r); err != nil {
		b.t.Fatal(err)
	}
	return r
}

// stream sends numbered messages to an entity until it is stopped, and knows which were acknowledged.
type stream struct {
	mu   sync.Mutex
	sent []string
	stop chan struct{}
	done chan struct{}
}

func (b *brokers) stream(d *fsm.Descriptor, via fsm.NodeID) *stream {
	s := &stream{stop: make(chan struct{}), done: make(chan struct{})}
	r := b.all[via].r
	go func() {
		defer close(s.done)
		for n := uint64(1); ; n++ {
			select {
			case <-s.stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			text := fmt.Sprintf("s%05d", n)
			c := &fsm.Enqueue{Messages: []fsm.Message{{MessageID: text, Body: storedForm(nil, text)}}}
			o, err := r.Propose(b.t.Context(), fsm.RequestID{Node: 900, Pump: 1, Counter: n}, fsm.Key{Entity: d.ID}, c)
			if err != nil || o.Refusal != fsm.None {
				b.t.Errorf("send: %+v, %v", o, err)
				return
			}
			s.mu.Lock()
			s.sent = append(s.sent, text)
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *stream) acknowledged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[:len(s.sent):len(s.sent)]
}

// eachOnce checks that a restored destination gets every message that was acknowledged before the backup, and nothing
// twice.
func (b *brokers) eachOnce(from, to *fsm.Descriptor, before, after []string) {
	b.t.Helper()
	for _, wrong := range b.wrongly(from, to, before, after) {
		b.t.Error(wrong)
	}
}

// wrongly returns what is missing of the messages that were acknowledged before a backup, or in front of one that is there. It also
// returns what is there twice, or was sent by nobody.
func (b *brokers) wrongly(from, to *fsm.Descriptor, before, after []string) (wrong []string) {
	b.t.Helper()
	ctx := shortly(b.t.(*testing.T), 10*time.Minute)
	b.until("forwards have ended", func() string {
		return strings.Join(b.texts(ctx, from, fsm.Main), " ")
	})
	count := map[string]int{}
	for _, d := range []*fsm.Descriptor{from, to} {
		for _, sub := range []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.TransferDeadLetter} {
			for _, text := range b.texts(ctx, d, sub) {
				if count[text]++; sub != fsm.Main {
					wrong = append(wrong, text+" is a dead letter")
				}
			}
		}
	}
	for _, text := range before {
		if count[text] != 1 {
			wrong = append(wrong, fmt.Sprintf("%s was acknowledged before the backup and is there %d times", text, count[text]))
		}
		delete(count, text)
	}
	known := map[string]bool{}
	for _, text := range after {
		known[text] = true
	}
	last := ""
	for text, n := range count { // order-free: each is judged by itself
		if n != 1 || !known[text] {
			wrong = append(wrong, fmt.Sprintf("%s is there %d times, sent is %v", text, n, known[text]))
		}
		last = max(last, text)
	}
	// One sender sent them one by one, so the image of the source has all up to some message.
	for _, text := range after {
		if text < last && !slices.Contains(before, text) && count[text] == 0 {
			wrong = append(wrong, fmt.Sprintf("%s is missing, and %s is there", text, last))
		}
	}
	b.t.Logf("%d messages of before the backup, %d of meanwhile", len(before), len(count))
	return wrong
}

// S-360, S-361, S-364: a backup under forwards has each message once, also if a leader dies while they are held. It
// restores into a cluster of another size, where what was in transit goes on.
func TestABackupUnderForwardsHasEachMessageOnce(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("a leader dies %v", kill), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := sized(t, 3, 4)
				b.net.SetDelay(2*time.Millisecond, 0)
				ctx := shortly(t, 30*time.Minute)
				b.createQueue(ctx, "n1", queue("destination", true))
				src := queue("source", false)
				src.ForwardTo = "destination"
				from := b.createQueue(ctx, "n1", src)
				s := b.stream(from, "n1")
				time.Sleep(3 * time.Second)
				before := s.acknowledged()
				if kill {
					var victim fsm.NodeID
					b.until("another node than the one that the test asks leads the source", func() string {
						if victim = b.leader(from.Partitions[0]).Node(); victim != "n1" {
							return ""
						}
						return fmt.Sprint(b.all["n1"].host.TransferLeadership(ctx, from.Partitions[0], "n2"))
					})
					time.AfterFunc(4*time.Millisecond, func() { b.net.Isolate(victim, true) })
				}
				got := b.take(ctx, "n1")
				after := s.acknowledged()
				close(s.stop)
				<-s.done
				if kill {
					after = s.acknowledged() // one may have been on its way
				}
				b.close()

				small := sized(t, 1, 7)
				defer small.close()
				r := small.putBack(ctx, got, RestoreOptions{})
				restored := map[string]*fsm.Descriptor{}
				for _, e := range r.Entities {
					restored[e.Name] = e
				}
				if e := restored["destination"]; len(e.Partitions) != 4 || len(e.Prefixes) != 4 {
					t.Fatalf("the destination has %d shares, prefixes %v", len(e.Partitions), e.Prefixes)
				}
				small.eachOnce(restored["source"], restored["destination"], before, after)
			})
		})
	}
}

// S-362, S-365: the numbers of scheduled and deferred messages stay valid, in whatever partition they are, and so do
// counts, states of sessions and ids of duplicates. A lock is released.
func TestNumbersAndStatesSurviveARestore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 4)
		ctx := shortly(t, 30*time.Minute)
		spread := queue("spread", true)
		spread.DetectDuplicates = true
		q := b.createQueue(ctx, "n1", spread)
		ordered := queue("ordered", false)
		ordered.RequiresSession = true
		o := b.createQueue(ctx, "n1", ordered)
		numbers := map[fsm.SequenceNumber]int{}
		n := uint64(0)
		ask := func(r *Router, k fsm.Key, c fsm.Command) fsm.Outcome {
			t.Helper()
			n++
			out, err := r.Propose(ctx, fsm.RequestID{Node: 901, Pump: 1, Counter: n}, k, c)
			if err != nil || out.Refusal != fsm.None {
				t.Fatalf("%T: %+v, %v", c, out, err)
			}
			return out
		}
		r := b.all["n1"].r
		for share := range q.Partitions {
			k := fsm.Key{Entity: q.ID, By: fsm.ByShare, Share: uint16(share)}
			for i := range 3 {
				text := fmt.Sprintf("%d-%d", share, i)
				ask(r, k, &fsm.Enqueue{Messages: []fsm.Message{{MessageID: text, Body: storedForm(nil, text)}}})
			}
			got := ask(r, k, &fsm.Lock{Max: 2}).Locked
			ask(r, k, &fsm.Settle{Items: []fsm.SettleItem{{Token: got[0].Token, Verdict: fsm.Defer}}})
			numbers[got[0].Seq] = share
		}
		key := fsm.Key{Entity: o.ID}
		ask(r, key, &fsm.Enqueue{Messages: []fsm.Message{{HasSession: true, SessionID: "s", Body: storedForm(nil, "first")}}})
		held := ask(r, key, &fsm.AcceptSession{ID: "s"}).Session
		ask(r, key, &fsm.SetSessionState{Session: held, State: []byte("state")})
		got := b.take(ctx, "n2")
		b.close()

		small := sized(t, 1, 6)
		defer small.close()
		made := small.putBack(ctx, got, RestoreOptions{})
		v := small.all["n1"].dir.View()
		q, o, r = v.Entity("spread"), v.Entity("ordered"), small.all["n1"].r
		if len(made.Entities) != 2 || q.Status != fsm.Active || q.Suspended {
			t.Fatalf("%+v", q)
		}
		for number, share := range numbers { // order-free: each is a message of its own
			if q.ShareOf(number.Prefix()) != share {
				t.Errorf("number %d leads to share %d, it was in %d", number, q.ShareOf(number.Prefix()), share)
			}
			k := fsm.Key{Entity: q.ID, By: fsm.ByShare, Share: uint16(share)}
			d := ask(r, k, &fsm.Receive{Numbers: []fsm.SequenceNumber{number}}).Locked
			if len(d) != 1 || textOf(t, d[0].Body) != fmt.Sprintf("%d-0", share) || d[0].Attempts != 1 {
				t.Errorf("deferred message %d: %+v", number, d)
			}
			again := &fsm.Enqueue{Messages: []fsm.Message{{MessageID: fmt.Sprintf("%d-1", share), Body: storedForm(nil, "again")}}}
			if out := ask(r, k, again); len(out.Duplicate) != 1 || !out.Duplicate[0] {
				t.Errorf("an id of before the backup is not known: %+v", out)
			}
			if l := ask(r, k, &fsm.Lock{Max: 9}).Locked; len(l) != 2 || textOf(t, l[0].Body) != fmt.Sprintf("%d-1", share) {
				t.Errorf("share %d delivers %+v", share, l)
			}
		}
		key = fsm.Key{Entity: o.ID}
		held = ask(r, key, &fsm.AcceptSession{ID: "s"}).Session
		a, err := r.Query(ctx, key, &fsm.GetSessionState{Session: held})
		if err != nil || string(a.State) != "state" {
			t.Errorf("state of the session: %+v, %v", a, err)
		}
	})
}

// S-367, S-370: a restore refuses what does not fit, and says what there is.
func TestARestoreThatDoesNotFitIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 1, 4)
		defer b.close()
		ctx := shortly(t, 30*time.Minute)
		b.createQueue(ctx, "n1", queue("spread", true))
		q := b.createQueue(ctx, "n1", queue("plain", false))
		b.put(ctx, q, fsm.RequestID{Node: 902, Pump: 1, Counter: 1}, "one", "two")
		got := b.take(ctx, "n1")
		d := b.all["n1"].dir
		if _, err := d.BeginRestore(ctx, got.entities, RestoreOptions{}); !errors.Is(err, ErrNotEmpty) ||
			!strings.Contains(err.Error(), `"plain"`) {
			t.Errorf("into a cluster that has entities: %v", err)
		}
		if _, err := d.BeginRestore(ctx, got.entities, RestoreOptions{Entity: "plain"}); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("one that is there: %v", err)
		}
		if _, err := d.BeginRestore(ctx, got.entities, RestoreOptions{Entity: "other"}); !errors.Is(err, fsm.ErrNoEntity) {
			t.Errorf("one that the backup lacks: %v", err)
		}
		other := got.entities
		other.Format++
		if _, err := d.BeginRestore(ctx, other, RestoreOptions{}); !errors.Is(err, ErrNoFit) {
			t.Errorf("of another format: %v", err)
		}
		// One entity under another name, beside the first.
		r := b.putBack(ctx, got, RestoreOptions{Entity: "plain", As: "copy"})
		if len(r.Partitions) != 1 || r.Entities[0].Name != "copy" {
			t.Fatalf("%+v", r)
		}
		b.arrives(r.Entities[0], fsm.Main, time.Minute, "one", "two")
		b.arrives(q, fsm.Main, time.Minute, "one", "two")

		few := sized(t, 1, 3)
		defer few.close()
		if _, err := few.all["n1"].dir.BeginRestore(ctx, got.entities, RestoreOptions{}); !errors.Is(err, ErrNoFit) ||
			!strings.Contains(err.Error(), "it needs 4") {
			t.Errorf("into too few partitions: %v", err)
		}
		if n := few.all["n1"].dir.View().Len(); n != 0 {
			t.Errorf("%d entities were made", n)
		}
	})
}

// S-369: nodes that do not know backups never meet their commands.
func TestNoBackupWithOlderNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := upgradable(t)
		defer b.close()
		b.createQueue(shortly(t, time.Minute), "n1", queue("orders", true))
		time.Sleep(time.Minute)
		d := b.all["n1"].dir
		if _, err := d.CreateBackup(shortly(t, time.Minute)); !errors.Is(err, ErrOldNodes) {
			t.Errorf("a backup: %v", err)
		}
		if _, err := d.BeginRestore(shortly(t, time.Minute), BackedUpEntities{Format: 1}, RestoreOptions{}); !errors.Is(err, ErrOldNodes) {
			t.Errorf("a restore: %v", err)
		}
		for p := fsm.PartitionID(1); p <= 4; p++ {
			b.leader(p).View(func(m replica.Machine, _ uint64) {
				if m.(*fsm.State).Holding() != 0 {
					t.Errorf("partition %d holds forwards", p)
				}
			})
		}
	})
}

// S-368: a backup that nobody reads is given up, and its bodies with it.
func TestABackupThatNobodyReadsIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 2)
		defer b.close()
		ctx := shortly(t, time.Hour)
		d := b.all["n1"].dir
		made, err := d.CreateBackup(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(captureLife - time.Second)
		if err := d.WriteImage(ctx, made, 1, io.Discard); err != nil {
			t.Fatalf("before its time is over: %v", err)
		}
		time.Sleep(captureLife + time.Second)
		for p := range fsm.PartitionID(2) {
			if err := d.WriteImage(ctx, made, p+1, io.Discard); err == nil {
				t.Errorf("the image of partition %d is there after its time", p+1)
			}
		}
		for id, n := range b.all { // order-free: each is looked at by itself
			n.host.captures.mu.Lock()
			held := len(n.host.captures.held)
			n.host.captures.mu.Unlock()
			if held != 0 {
				t.Errorf("%s holds %d images, want none", id, held)
			}
		}
	})
}

// slowWriter takes some time for each of its writes.
type slowWriter time.Duration

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(w))
	return len(p), nil
}

// S-368: whoever reads one image of a backup reads the backup. Images are read one after the other, by one who may need
// longer for each than an image is kept that nobody reads.
func TestABackupIsKeptWhileOneOfItsImagesIsRead(t *testing.T) {
	simulatesLong(t)
	inBubble(t, func(t *testing.T) {
		b := sized(t, 4, 4)
		defer b.close()
		ctx := shortly(t, 10*time.Hour)
		q := b.createQueue(ctx, "n1", queue("orders", true))
		body := bytes.Repeat([]byte("x"), 900<<10)
		for n := range uint64(16) {
			b.enqueue(ctx, q, fsm.RequestID{Node: 900, Pump: 1, Counter: n + 1}, &fsm.Enqueue{Messages: []fsm.Message{{Body: body}}})
		}
		d := b.all["n1"].dir
		made, err := d.CreateBackup(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range made.Partitions {
			began := time.Now()
			if err := d.WriteImage(ctx, made, p.ID, slowWriter(captureLife/2)); err != nil {
				t.Errorf("partition %d at node %s: %v", p.ID, p.node, err)
			}
			t.Logf("partition %d took %v", p.ID, time.Since(began))
		}
	})
}
