package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/storage"
)

const (
	damageMessages = 120
	// damagePlaces are flipped for each of the two kinds of log, damagePlacesShort with -short.
	damagePlaces, damagePlacesShort = 320, 64
	// damageKinds are how many kinds of files a node has; a new one must be in this test.
	damageKindsWAL, damageKindsBolt = 16, 15
	// damageWorkers start nodes at the same time: most of a start is waiting.
	damageWorkers = 8
)

// TestFlippedBitsAreRefusedOrQuarantined flips one bit after another in every kind of file of a whole
// node. The node then does one of three things: it refuses to start, with the file and what to do; it
// gives up the replica, loudly, with the file, and is not ready; or the bit was one that nobody reads,
// and it serves what was sent. It never serves anything else.
func TestFlippedBitsAreRefusedOrQuarantined(t *testing.T) {
	places := damagePlaces
	if testing.Short() {
		places = damagePlacesShort
	}
	for log, kinds := range map[string]int{storage.LogWAL: damageKindsWAL, storage.LogBolt: damageKindsBolt} {
		t.Run(log, func(t *testing.T) {
			root := t.TempDir()
			whole := filepath.Join(root, "whole")
			fillDamaged(t, damagedConfig(t, whole, log))
			if err := os.Rename(filepath.Join(whole, "BALLAST"), filepath.Join(root, "BALLAST")); err != nil {
				t.Fatal(err)
			}
			byKind := map[string][]string{}
			for _, name := range filesBelow(t, whole) {
				byKind[kindOfFile(name)] = append(byKind[kindOfFile(name)], name)
			}
			if len(byKind) != kinds {
				t.Fatalf("%d kinds of files, want %d: %v", len(byKind), kinds, byKind)
			}
			names := make([]string, 0, len(byKind))
			for k := range byKind {
				names = append(names, k)
			}
			slices.Sort(names)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			d := &damageTally{tried: map[string]int{}, refused: map[string]int{}, quarantined: map[string]int{}}
			todo := make(chan damagePlace)
			var wg sync.WaitGroup
			for w := range damageWorkers {
				wg.Go(func() {
					for p := range todo {
						d.flip(t, p, whole, filepath.Join(root, strconv.Itoa(w)), log)
					}
				})
			}
			for i := range places {
				kind := names[i%len(names)]
				files := byKind[kind]
				todo <- damagePlace{kind, files[rng.IntN(len(files))], rng.Uint64(), rng.IntN(8)}
			}
			close(todo)
			wg.Wait()
			d.report(t, names)
		})
	}
}

func damagedConfig(t testing.TB, dir, log string) Config {
	t.Helper()
	given := map[string][]string{"dev": {"true"}, "data-dir": {dir}, "partitions": {"1"},
		"log-store": {log}, "amqp-listen": {"127.0.0.1:0"}, "tls-listen": {"127.0.0.1:0"},
		"ops-listen": {"127.0.0.1:0"}, "node-id": {"n1"}}
	cfg, err := load("", given, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// fillDamaged leaves a directory with everything in it: a snapshot with bodies, a log behind it, the
// sighting of another node, and the marks of an orderly stop.
func fillDamaged(t *testing.T, cfg Config) {
	t.Helper()
	ctx := t.Context()
	n := startNode(t, cfg)
	d, err := n.directory.Create(ctx, fsm.Descriptor{Kind: fsm.Queue, Name: "damaged",
		LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 40,
		DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited, DuplicateWindow: 600_000})
	if err != nil {
		t.Fatal(err)
	}
	data := n.host.Replica(d.Partitions[0])
	const batch = 10
	for sent := 0; sent < damageMessages; sent += batch {
		q := &fsm.Enqueue{Messages: make([]fsm.Message, batch)}
		for i := range q.Messages {
			q.Messages[i] = fsm.Message{MessageID: strconv.Itoa(sent + i), Body: damageBody(sent + i)}
		}
		o, err := data.Propose(ctx, fsm.Request{Entity: d.ID, Command: q})
		if err != nil || o.Refusal != fsm.None {
			t.Fatalf("after %d: %+v, %v", sent, o, err)
		}
		if sent == damageMessages/2 {
			for _, p := range []fsm.PartitionID{fsm.CatalogPartition, d.Partitions[0]} {
				if err := n.host.Replica(p).Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, err := n.dir.Witness("another", storage.Sighting{Life: 3, Incarnation: 4}); err != nil {
		t.Fatal(err)
	}
	stopNode(t, n)
}

func damageBody(i int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "message %d. ", i), 40)
}

func filesBelow(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		// LOCK and BALLAST have no content; ports.json and ca.pem are written at every start.
		if err != nil || e.IsDir() || slices.Contains([]string{"LOCK", "BALLAST", "ports.json", "ca.pem"}, e.Name()) {
			return err
		}
		name, err := filepath.Rel(root, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var digits = regexp.MustCompile(`[0-9][0-9-]*`)

// kindOfFile is a name without its numbers.
func kindOfFile(name string) string { return digits.ReplaceAllString(name, "#") }

// damagePlace is one bit of one file.
type damagePlace struct {
	kind, name string
	at         uint64 // number of the byte among those that are not zero, modulo
	bit        int
}

// damageTally counts what came of the places.
type damageTally struct {
	mu                          sync.Mutex
	tried, refused, quarantined map[string]int
}

// flip changes one bit of a copy and looks at what a node makes of it.
func (d *damageTally) flip(t *testing.T, p damagePlace, whole, dir, log string) {
	t.Helper()
	fail := func(err error) bool {
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		return err != nil
	}
	if fail(copyDamaged(whole, dir)) {
		return
	}
	file := filepath.Join(dir, p.name)
	text, err := os.ReadFile(file)
	if fail(err) {
		return
	}
	at := writtenByte(text, p.at)
	text[at] ^= 1 << p.bit
	if fail(os.WriteFile(file, text, 0o600)) {
		return
	}
	verdict, err := openDamaged(t, damagedConfig(t, dir, log), filepath.Join(dir, filepath.Dir(p.name)))
	if err != nil {
		t.Errorf("%s, bit %d of byte %d of %d: %v", p.name, p.bit, at, len(text), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried[p.kind]++
	switch verdict {
	case damageRefused:
		d.refused[p.kind]++
	case damageQuarantined:
		d.quarantined[p.kind]++
	}
}

// writtenByte chooses a byte that is not zero: most of the pages of bolt, and of the room that a log
// takes ahead, were never written.
func writtenByte(text []byte, number uint64) int {
	var written []int
	for i, c := range text {
		if c != 0 {
			written = append(written, i)
		}
	}
	return written[number%uint64(len(written))]
}

// copyDamaged copies the directory but for the ballast, which is linked: it is large and nobody reads it.
func copyDamaged(whole, dir string) error {
	const ballast = "BALLAST"
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(whole))); err != nil {
		return err
	}
	return os.Link(filepath.Join(filepath.Dir(whole), ballast), filepath.Join(dir, ballast))
}

func (d *damageTally) report(t *testing.T, kinds []string) {
	t.Helper()
	tried, found := 0, 0
	for _, k := range kinds {
		tried, found = tried+d.tried[k], found+d.refused[k]+d.quarantined[k]
		t.Logf("%-45s %3d places: %2d refused, %2d quarantined, %2d not read and served as it was",
			k, d.tried[k], d.refused[k], d.quarantined[k], d.tried[k]-d.refused[k]-d.quarantined[k])
		// A file whose bytes all count must show it. Of bolt's pages and of a log behind a snapshot many
		// are not read again.
		if strings.HasSuffix(k, ".json") && d.refused[k]+d.quarantined[k] != d.tried[k] {
			t.Errorf("a flipped bit of %s went by", k)
		}
	}
	t.Logf("%d places flipped, %d refused or quarantined, the others were not read", tried, found)
}

type damageVerdict int

const (
	damageServed damageVerdict = iota
	damageRefused
	damageQuarantined
)

// openDamaged starts a node on damaged data; near is the directory of the damaged file. An error says
// that the node does what it must not.
func openDamaged(t *testing.T, cfg Config, near string) (damageVerdict, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out logText
	n, err := openNode(ctx, cfg, hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info}))
	if err != nil {
		if !strings.Contains(err.Error(), near) || !strings.Contains(err.Error(), "to mend it: ") &&
			!strings.Contains(err.Error(), "delete it to make a new CA: rm ") {
			return 0, fmt.Errorf("a refusal that does not say which file and what to do: %w", err)
		}
		return damageRefused, nil
	}
	defer stopNode(t, n)
	ready := func() bool { return n.host.Ready(ctx) == nil }
	failure := awaitFailure(ctx, n, ready)
	if failure == "" {
		done := make(chan error, 1)
		reading, stop := context.WithCancel(ctx)
		go func() { done <- readDamaged(reading, n) }()
		// Reading may find what opening did not look at. Clients then wait for another leader.
		failure = awaitFailure(ctx, n, func() bool { return len(done) > 0 })
		stop()
		if err := <-done; failure == "" && err != nil {
			return 0, err
		}
	}
	if failure != "" {
		return damageQuarantined, checkQuarantine(ctx, n, failure, near, &out)
	}
	was, err := n.dir.Witness("another", storage.Sighting{})
	if err != nil && strings.Contains(err.Error(), near) {
		return damageRefused, nil // nobody is witnessed any more, so no replica is vouched for
	}
	if err != nil || was != (storage.Sighting{Life: 3, Incarnation: 4}) {
		return 0, fmt.Errorf("another node is remembered as %+v, %w", was, err)
	}
	return damageServed, nil
}

// checkQuarantine asks for what a replica that failed for good says, wherever somebody looks. The log
// has it a moment after the status.
func checkQuarantine(ctx context.Context, n *node, failure, near string, log *logText) error {
	switch {
	case !strings.Contains(failure, near):
		return fmt.Errorf("a failure that does not say which file: %s", failure)
	case n.host.Ready(ctx) == nil:
		return errors.New("a node with a failed replica is ready")
	}
	for text := log.String(); !strings.Contains(text, "mend=") || !strings.Contains(text, near); text = log.String() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the log does not say what to do: %s", text)
		case <-time.After(5 * time.Millisecond): // a line of the log has no event
		}
	}
	return nil
}

// awaitFailure returns with nothing when done, or with why when a replica has failed.
func awaitFailure(ctx context.Context, n *node, done func() bool) string {
	for ctx.Err() == nil {
		for _, s := range n.host.Status() {
			if s.Broken {
				return s.Failure
			}
		}
		if done() {
			return ""
		}
		select {
		case <-ctx.Done():
		case <-n.host.Changed():
		case <-time.After(5 * time.Millisecond): // Ready has no event of its own
		}
	}
	return "neither done nor failed"
}

// readDamaged reads all messages.
func readDamaged(ctx context.Context, n *node) error {
	q := n.directory.View().Entity("damaged")
	if q == nil {
		return errors.New("the queue is gone and nothing was said")
	}
	a, err := n.router.Query(ctx, fsm.Key{Entity: q.ID, By: fsm.ByShare}, &fsm.Peek{Max: 2 * damageMessages,
		MaxBytes: 64 << 20})
	if err != nil {
		return err
	}
	if len(a.Messages) != damageMessages {
		return fmt.Errorf("%d messages of %d", len(a.Messages), damageMessages)
	}
	for i, m := range a.Messages {
		if !bytes.Equal(m.Body, damageBody(i)) {
			return fmt.Errorf("message %d is served with another body of %d bytes", i, len(m.Body))
		}
	}
	return nil
}

// logText is a log that may be written and read at once.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
