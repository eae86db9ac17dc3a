package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

// backedUp is how many messages lie still while a backup is taken. They stand in queues that nobody changes, so each field of
// each of them is compared.
var backedUp = flag.Int("backup", 600, "messages that lie still while a backup is taken")

// flipped is how many places of the backup are changed in turn.
var flipped = flag.Int("flips", 40, "places of a backup that are changed in turn")

// Entities of the backup. Names without a load are not changed while it is taken.
const (
	stillQueue    = "still"
	stillSessions = "still-sessions"
	stillParted   = "still-parted"
	stillOnce     = "still-once" // with duplicate detection
	stillTopic    = "still-topic"
	stillSub      = stillTopic + "/Subscriptions/all"
	loadQueue     = "load"
	loadSource    = "load-source" // is forwarded to loadTarget
	loadTarget    = "load-target"
	stillMixed    = "still-mixed" // its messages are in many states
	loadVia       = "load-via"    // these two get each transaction's messages
	loadOther     = "load-other"
)

// stateEvery is of how many messages one has a session whose state is set.
const stateEvery = 4000

// TestABackupUnderLoadIsRestored: S-361, S-362, S-364, S-365, S-367, S-370. Three nodes are backed up while the Go SDK sends and
// messages are forwarded. The backup is verified, and restored into five nodes with another number of partitions. What lay
// still comes back field by field, as an export shows it. Of what was sent meanwhile all is there that was acknowledged
// before the backup. Each message is there once, and none is missing between two that are there.
func TestABackupUnderLoadIsRestored(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), caseLimit+time.Duration(*backedUp)*10*time.Millisecond)
	defer cancel()
	b := &backupCase{dir: filepath.Join(t.TempDir(), "backups")}
	from, err := cluster.Start(ctx, t.TempDir(), 3, "--partitions", "2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Close)
	b.use(t, ctx, from)
	b.entities()
	b.fill()
	b.backUpUnderLoad()
	b.flips()
	before := b.still()
	from.Close()

	b.refused()
	into, err := cluster.Start(ctx, t.TempDir(), 5, "--partitions", "5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(into.Close)
	b.use(t, ctx, into)
	b.restore()
	b.sameAs(before)
	b.loadIsWhole()
	b.goesOn()
	b.again()
}

type backupCase struct {
	*env
	s   *shell
	dir string
	at  string // place of the backup

	deferred, scheduled int64             // numbers in stillQueue
	states              map[string]string // of sessions

	mu          sync.Mutex
	acked, sent map[string]int // of each sender: acknowledged before the backup began, and begun before it ended
}

// use makes the case speak to a cluster.
func (b *backupCase) use(t *testing.T, ctx context.Context, c *cluster.Cluster) {
	t.Helper()
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	b.env = newEnv(t, c, false, 0)
	b.env.ctx = ctx
	n := c.Nodes[0]
	b.s = &shell{T: t, bin: bin, limit: caseLimit + time.Duration(*backedUp)*5*time.Millisecond,
		env: []string{"SERVICEBUS_CONNECTION_STRING=" + n.ConnectionString(false), "BUSBAR_OPS=http://" + n.Ops}}
}

func (b *backupCase) entities() {
	b.Helper()
	a := b.admin(0)
	for name, p := range map[string]admin.QueueProperties{
		stillQueue: {LockDuration: to("PT5M")}, stillSessions: {RequiresSession: to(true)}, stillParted: {EnablePartitioning: to(true)},
		stillOnce: {RequiresDuplicateDetection: to(true), DuplicateDetectionHistoryTimeWindow: to("PT1H")},
		loadQueue: {}, loadTarget: {}, stillMixed: {LockDuration: to("PT5M")}, loadVia: {}, loadOther: {},
	} {
		_, err := a.CreateQueue(b.ctx, name, &admin.CreateQueueOptions{Properties: &p})
		b.must("create "+name, err)
	}
	_, err := a.CreateQueue(b.ctx, loadSource, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{ForwardTo: to(loadTarget)}})
	b.must("create "+loadSource, err)
	_, err = a.CreateTopic(b.ctx, stillTopic, nil)
	b.must("create "+stillTopic, err)
	_, err = a.CreateSubscription(b.ctx, stillTopic, "all", nil)
	b.must("create "+stillSub, err)
}

// fill puts messages of every state into the queues that lie still.
func (b *backupCase) fill() {
	b.Helper()
	c := b.client(0)
	for _, to := range []string{stillQueue, stillParted, stillOnce, stillTopic} {
		b.batches(c, to, *backedUp/5, func(int) *string { return nil })
	}
	sessions := max(5, *backedUp/200)
	b.batches(c, stillSessions, *backedUp/5, func(i int) *string { return to("s" + strconv.Itoa(i%sessions)) })
	b.states = map[string]string{"s0": "state of s0", "alone": "state of a session without messages"}
	for i := range *backedUp / stateEvery {
		b.states[fmt.Sprintf("s%d", i+1)] = fmt.Sprintf("state %d", i+1)
	}
	b.mixed(c)
	b.send(b.sender(c, stillOnce), &azservicebus.Message{MessageID: to(stillOnce + "-2"), Body: []byte("again")})
	for id, state := range b.states {
		r := b.accept(c, stillSessions, id)
		b.must("set state", r.SetSessionState(b.ctx, []byte(state), nil))
		b.must("close", r.Close(b.ctx))
	}
	numbers, err := b.sender(c, stillQueue).ScheduleMessages(b.ctx,
		[]*azservicebus.Message{{Body: []byte("later")}, {Body: []byte("later, too")}}, time.Now().Add(time.Hour), nil)
	b.must("schedule", err)
	b.scheduled = numbers[0]

	r := b.receiver(c, stillQueue, nil)
	got := b.take(r, 4)
	b.must("defer", r.DeferMessage(b.ctx, got[0], nil))
	b.deferred = *got[0].SequenceNumber
	b.must("dead-letter", r.DeadLetterMessage(b.ctx, got[1], &azservicebus.DeadLetterOptions{Reason: to("a reason"), ErrorDescription: to("a text")}))
	b.must("abandon", r.AbandonMessage(b.ctx, got[2], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tries": int64(1)}}))
	// The fourth stays locked: a restore gives it back.
}

// batches sends n messages, which differ in every field that they have.
func (b *backupCase) batches(c *azservicebus.Client, entity string, n int, session func(int) *string) {
	b.Helper()
	s := b.sender(c, entity)
	batch, err := s.NewMessageBatch(b.ctx, nil)
	b.must("batch", err)
	for i := range n {
		m := &azservicebus.Message{MessageID: to(fmt.Sprintf("%s-%d", entity, i)), Body: fmt.Appendf(nil, "body %d of %s", i, entity),
			SessionID: session(i), Subject: to("subject " + strconv.Itoa(i)), ApplicationProperties: map[string]any{"i": int64(i), "even": i%2 == 0}}
		err := batch.AddMessage(m, nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) { // the batch is full
			b.must("send", s.SendMessageBatch(b.ctx, batch, nil))
			batch, err = s.NewMessageBatch(b.ctx, nil)
			b.must("batch", err)
			err = batch.AddMessage(m, nil)
		}
		b.must("add", err)
	}
	if batch.NumMessages() > 0 {
		b.must("send", s.SendMessageBatch(b.ctx, batch, nil))
	}
}

// loaders is how many senders a queue has. Each numbers its messages, and sends one when the one before is acknowledged.
const loaders = 3

// backUpUnderLoad takes a backup while senders are at work. Each has sent some before.
func (b *backupCase) backUpUnderLoad() {
	b.Helper()
	const warm = 30
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var wg sync.WaitGroup
	done, begun := map[string]int{}, map[string]int{}
	ready := make(chan struct{}, 2*loaders+1)
	t := b.transactions()
	wg.Go(func() {
		defer t.close()
		for n := 0; ctx.Err() == nil && t.one(n); n++ {
			if n == warm {
				ready <- struct{}{}
			}
			b.mu.Lock()
			for _, queue := range []string{loadVia, loadOther} { // the next one may be committed before its answer
				done[queue], begun[queue] = n+1, n+2
			}
			b.mu.Unlock()
		}
	})
	for _, queue := range []string{loadQueue, loadSource} {
		for i := range loaders {
			name, s := fmt.Sprintf("%s/%d", queue, i), b.sender(b.client(i), queue)
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if n == warm {
						ready <- struct{}{}
					}
					b.mu.Lock()
					begun[name] = n + 1
					b.mu.Unlock()
					if err := s.SendMessage(ctx, &azservicebus.Message{Body: fmt.Appendf(nil, "%s %d", name, n)}, nil); err != nil {
						if ctx.Err() == nil {
							b.Errorf("send beside a backup: %v", err)
						}
						return
					}
					b.mu.Lock()
					done[name] = n + 1
					b.mu.Unlock()
				}
			})
		}
	}
	for range 2*loaders + 1 {
		select {
		case <-ready:
		case <-ctx.Done():
			b.Fatal("the senders did not begin")
		}
	}
	b.mu.Lock()
	b.acked = maps.Clone(done)
	b.mu.Unlock()
	open := b.openTransaction()
	began := time.Now()
	printed := b.s.do(0, "", "backup", "create", b.dir, "-o", "json")
	b.Logf("backed up in %s: %s", time.Since(began).Round(time.Millisecond), strings.TrimSpace(printed))
	b.mu.Lock()
	b.sent = maps.Clone(begun)
	b.mu.Unlock()
	stop()
	wg.Wait()
	open()

	var made struct{ Backup string }
	b.must("read "+printed, json.Unmarshal([]byte(printed), &made))
	b.at = made.Backup
	var verified struct {
		Whole bool
		Files []struct {
			Name  string
			Bytes uint64
			Image *struct {
				Active, Scheduled, Deferred, Locked uint64
				BodyBytes                           uint64 `json:"body_bytes"`
			}
		}
	}
	began = time.Now()
	printed = b.s.do(0, "", "backup", "verify", b.at, "-o", "json")
	took := time.Since(began)
	b.must("read "+printed, json.Unmarshal([]byte(printed), &verified))
	var scheduled, deferred, locked, bytes, bodies uint64
	for _, f := range verified.Files[1:] {
		bytes, bodies = bytes+f.Bytes, bodies+f.Image.BodyBytes
		scheduled, deferred, locked = scheduled+f.Image.Scheduled, deferred+f.Image.Deferred, locked+f.Image.Locked
	}
	b.Logf("verified in %s: %d bytes, of which %d are of bodies", took.Round(time.Millisecond), bytes, bodies)
	n := uint64(mixedOf())
	if !verified.Whole || len(verified.Files) != 3 || scheduled != 2+n || deferred != 1+n || locked != 1 {
		b.Errorf("verify printed %s, want 2 partitions with %d scheduled messages, %d deferred and 1 locked", printed, 2+n, 1+n)
	}
	b.Logf("acknowledged before the backup %v, begun before its end %v", b.acked, b.sent)
}

// lines are the messages of an entity, as an export shows them, without what a lock adds.
func (b *backupCase) lines(entity string, flags ...string) (all []string) {
	b.Helper()
	for line := range strings.Lines(b.s.do(0, "", append([]string{"messages", "export", entity}, flags...)...)) {
		var m map[string]any
		in := json.NewDecoder(strings.NewReader(line))
		in.UseNumber()
		b.must("read "+line, in.Decode(&m))
		delete(m, "lockedUntil")
		text, err := json.Marshal(m)
		b.must("write", err)
		all = append(all, string(text))
	}
	return all
}

// still reads everything of the entities that nobody changes.
func (b *backupCase) still() map[string][]string {
	b.Helper()
	all := map[string][]string{stillQueue + " dead": b.lines(stillQueue, "--dlq"), stillMixed: b.lines(stillMixed),
		stillMixed + " dead": b.lines(stillMixed, "--dlq")}
	if len(all[stillMixed]) != 4*mixedOf() || len(all[stillMixed+" dead"]) != mixedOf() {
		b.Errorf("%s has %d messages and %d dead letters", stillMixed, len(all[stillMixed]), len(all[stillMixed+" dead"]))
	}
	for _, entity := range []string{stillQueue, stillSessions, stillParted, stillOnce, stillSub} {
		all[entity] = b.lines(entity)
		if got := len(all[entity]); got < *backedUp/5-1 {
			b.Fatalf("%s has %d messages", entity, got)
		}
	}
	return all
}

func (b *backupCase) sameAs(before map[string][]string) {
	b.Helper()
	for entity, now := range b.still() {
		was := before[entity]
		if len(now) != len(was) {
			b.Errorf("%s has %d messages, and had %d", entity, len(now), len(was))
			continue
		}
		slices.Sort(now) // shares of a partitioned queue are listed in the order of their partitions
		slices.Sort(was)
		for i := range now {
			if now[i] != was[i] {
				b.Errorf("%s: a message came back as\n%s\nand was\n%s", entity, now[i], was[i])
				break
			}
		}
	}
}

// refused: a cluster with too few partitions takes nothing.
func (b *backupCase) refused() {
	b.Helper()
	n, err := cluster.StartSingle(b.ctx, b.TempDir(), "--partitions", "1")
	b.must("start", err)
	defer n.Stop()
	b.use(b.T, b.ctx, &cluster.Cluster{Nodes: []*cluster.Node{n}})
	_, said := b.s.both(2, "", "backup", "restore", b.at)
	if !strings.Contains(said, stillParted) || !strings.Contains(said, "partitions") {
		b.Errorf("a cluster with too few partitions said %q", said)
	}
	b.check(b.s.do(0, "", "queue", "list", "-o", "json") == "[]\n", "a restore that was refused has made queues")
}

func (b *backupCase) restore() {
	b.Helper()
	b.check(strings.Contains(b.s.do(0, "", "backup", "restore", b.at, "--dry-run"), stillQueue), "a dry run does not name %s", stillQueue)
	b.check(b.s.do(0, "", "queue", "list", "-o", "json") == "[]\n", "a dry run has made queues")
	began := time.Now()
	b.s.do(0, "", "backup", "restore", b.at)
	b.Logf("restored in %s", time.Since(began).Round(time.Millisecond))
	b.s.do(4, "", "backup", "restore", b.at)
}

// loadIsWhole: what a sender sent is there up to some message, each once, and that is one that the backup had to have.
func (b *backupCase) loadIsWhole() {
	b.Helper()
	deadline := time.Now().Add(soon)
	for len(b.lines(loadSource)) > 0 {
		b.check(time.Now().Before(deadline), "%s is not empty: its messages are not forwarded", loadSource)
		time.Sleep(100 * time.Millisecond)
	}
	b.transactionsAreWhole()
	seen := map[string]map[int]int{}
	for _, queue := range []string{loadQueue, loadTarget, loadVia, loadOther} {
		for _, line := range b.lines(queue) {
			var m struct{ Data []struct{ Text string } }
			b.must("read "+line, json.Unmarshal([]byte(line), &m))
			var n int
			var name string
			_, err := fmt.Sscanf(m.Data[0].Text, "%s %d", &name, &n)
			b.must("read "+m.Data[0].Text, err)
			if seen[name] == nil {
				seen[name] = map[int]int{}
			}
			seen[name][n]++
		}
	}
	b.check(seen["open"] == nil, "a transaction that was open is in the backup")
	for name, acked := range b.acked {
		there := seen[name]
		if len(there) < acked || len(there) > b.sent[name] {
			b.Errorf("%s: %d messages came back; %d were acknowledged before the backup, and %d begun before its end",
				name, len(there), acked, b.sent[name])
		}
		for n := range len(there) {
			if there[n] != 1 {
				b.Errorf("%s: message %d of %d came back %d times", name, n, len(there), there[n])
			}
		}
	}
}

// goesOn: clients go on where they were, with the numbers, states and ids that they have.
func (b *backupCase) goesOn() {
	b.Helper()
	c := b.client(3)
	r := b.receiver(c, stillQueue, nil)
	got, err := r.ReceiveDeferredMessages(b.ctx, []int64{b.deferred}, nil)
	b.must("receive the deferred message", err)
	b.complete(r, got...)
	s := b.sender(c, stillQueue)
	b.must("cancel the schedule", s.CancelScheduledMessages(b.ctx, []int64{b.scheduled}, nil))
	b.check(len(b.lines(stillQueue)) == *backedUp/5-1, "%d messages are left", len(b.lines(stillQueue)))
	dead := b.one(b.deadLetters(c, stillQueue))
	b.check(deref(dead.DeadLetterReason) == "a reason" && deref(dead.DeadLetterErrorDescription) == "a text", "dead because %v", dead.DeadLetterReason)
	for id, want := range b.states {
		session := b.accept(c, stillSessions, id)
		state, err := session.GetSessionState(b.ctx, nil)
		b.must("state", err)
		b.check(string(state) == want, "session %s has the state %q, want %q", id, state, want)
	}
	// The broker has seen these ids.
	n := len(b.lines(stillOnce))
	b.send(b.sender(c, stillOnce), &azservicebus.Message{MessageID: to(stillOnce + "-1")}, &azservicebus.Message{MessageID: to("new")})
	b.check(len(b.lines(stillOnce)) == n+1, "%d messages after an old id and a new one, want %d", len(b.lines(stillOnce)), n+1)
	b.send(b.sender(c, stillTopic), &azservicebus.Message{Body: []byte("new")})
	b.check(len(b.lines(stillSub)) == *backedUp/5+1, "the subscription has %d messages", len(b.lines(stillSub)))
}

// again: one queue is restored beside itself, from an encrypted copy of this cluster that went through a pipe.
func (b *backupCase) again() {
	b.Helper()
	phrase := filepath.Join(b.TempDir(), "phrase")
	b.must("write", os.WriteFile(phrase, []byte("correct horse battery\n"), 0o600))
	stream := b.s.do(0, "", "backup", "create", "-", "--passphrase-file", phrase)
	b.check(!strings.Contains(stream, stillQueue), "the name of a queue is in an encrypted backup")
	b.s.do(0, stream, "backup", "verify", "-", "--passphrase-file", phrase)
	b.s.do(0, stream, "backup", "restore", "-", "--passphrase-file", phrase, "--entity", stillParted, "--as", "copy")
	was, now := b.lines(stillParted), b.lines("copy")
	slices.Sort(was)
	slices.Sort(now)
	b.check(slices.Equal(was, now), "the copy has %d messages, and %s %d", len(now), stillParted, len(was))
}

// flips changes one bit after the other in the files of the backup. Each change is found, and its file is named.
func (b *backupCase) flips() {
	b.Helper()
	seed := rand.Uint64() % 1_000_000
	r := rand.New(rand.NewPCG(seed, 0))
	b.Logf("%d places are drawn by the seed %d", *flipped, seed)
	files, err := os.ReadDir(b.at)
	b.must("list", err)
	for i := range *flipped {
		name := files[i%len(files)].Name() // each file as often: backup.json is small
		f, err := os.OpenFile(filepath.Join(b.at, name), os.O_RDWR, 0)
		b.must("open", err)
		info, err := f.Stat()
		b.must("stat", err)
		at := r.Int64N(info.Size())
		var was [1]byte
		_, err = f.ReadAt(was[:], at)
		b.must("read", err)
		_, err = f.WriteAt([]byte{was[0] ^ 1<<r.IntN(8)}, at)
		b.must("write", err)
		printed, said := b.s.both(1, "", "backup", "verify", b.at)
		b.check(strings.Contains(printed+said, name), "byte %d of %s was changed, and verify said %q", at, name, said)
		_, err = f.WriteAt(was[:], at)
		b.must("put back", errors.Join(err, f.Close()))
	}
	b.s.do(0, "", "backup", "verify", b.at)
}
