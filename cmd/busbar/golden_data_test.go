package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/fsm"
)

// goldenData names the data directory to write; scripts/golden-data.sh gives it.
var goldenData = flag.String("golden-data", "", "write a golden data directory of this name, and check no other")

const goldenDataDir = "testdata/directories"

// TestDataDirectoriesOfEarlierReleasesOpen: each directory below testdata/directories was written by a release, or on
// the way to one. This program opens it, finds the entities, messages, sessions and states that the list beside it has, and works.
// A list changes only when a command of the list prints more than it did.
func TestDataDirectoriesOfEarlierReleasesOpen(t *testing.T) {
	if *goldenData != "" {
		writeGoldenData(t, filepath.Join(goldenDataDir, *goldenData))
		return
	}
	all, err := filepath.Glob(filepath.Join(goldenDataDir, "*.tar.gz"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no data directories: %v", err)
	}
	for _, file := range all {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) { openGoldenData(t, file) })
	}
}

func goldenDesk(t *testing.T, dir string) *desk {
	return deskAt(t, openLive(t, nodeConfig(t, func(c *Config) { c.DataDir = dir })))
}

func openGoldenData(t *testing.T, file string) {
	dir := t.TempDir()
	unpackGoldenData(t, file, dir)
	d := goldenDesk(t, dir)
	want, err := os.ReadFile(strings.TrimSuffix(file, ".tar.gz") + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := d.contents(); got != string(want) {
		t.Errorf("the directory holds\n%s\nand was written with\n%s", got, want)
	}
	// It works: what was stored is delivered with its body, and more is stored.
	for _, q := range []string{"orders", "wide"} {
		d.must(client.NewSendCommand(), "new", q)
	}
	got := d.must(client.NewReceiveCommand(), "", "orders", "--max", "10", "--wait", "1m", "--json")
	for _, body := range []string{"first", "new", "behind the snapshot", goldenLarge} {
		if !strings.Contains(got, body) {
			t.Errorf("%.20q was not received from %d bytes", body, len(got))
		}
	}
	if dlq := d.must(client.NewDeadLetterCommand(), "", "redrive", "orders", "--json"); !strings.Contains(dlq, `"moved":1`) {
		t.Errorf("redrive: %s", dlq)
	}
	// The leader of the catalog raises the version when it next asks all nodes. That can be later than all steps above.
	for fsm.Version(d.n.node.dir.Version()) != fsm.NewestVersion {
		time.Sleep(10 * time.Millisecond)
	}
}

// contents lists everything in the node that outlives a restart and does not depend on the date.
func (d *desk) contents() string {
	var out strings.Builder
	add := func(title, text string) { fmt.Fprintf(&out, "== %s\n%s", title, text) }
	add("entities", d.must(client.NewEntitiesCommand(), "", "export"))
	for _, q := range []string{"orders", "groups", "wide", "first", "second", "prices/Subscriptions/cheap"} {
		add(q, d.listed(d.must(client.NewPeekCommand(), "", q, "--max", "50", "--json")))
		add(q+", dead letters", d.listed(d.must(client.NewPeekCommand(), "", q, "--dlq", "--max", "50", "--json")))
	}
	add("groups, deferred", d.must(client.NewQueueCommand(), "", "peek", "groups", "--state", "deferred", "--json"))
	add("orders, scheduled", d.must(client.NewQueueCommand(), "", "peek", "orders", "--state", "scheduled", "--json"))
	add("groups, sessions", d.must(client.NewQueueCommand(), "", "sessions", "groups"))
	add("groups, state of a session", string(d.sessionState("groups", "a"))+"\n")
	return strings.ReplaceAll(out.String(), goldenLarge, "large")
}

// goldenMessage has the fields of a message that the lists of all releases have, in their order.
type goldenMessage struct {
	SequenceNumber int64          `json:"sequenceNumber"`
	MessageID      string         `json:"messageId,omitempty"`
	SessionID      *string        `json:"sessionId,omitempty"`
	EnqueuedAt     *time.Time     `json:"enqueuedAt,omitempty"`
	DeliveryCount  uint32         `json:"deliveryCount"`
	Subject        string         `json:"subject,omitempty"`
	DeadReason     string         `json:"deadLetterReason,omitempty"`
	DeadText       string         `json:"deadLetterErrorDescription,omitempty"`
	Properties     map[string]any `json:"properties,omitempty"`
	Body           string         `json:"body"`
}

// listed leaves in what peek prints the fields that do not change from release to release.
func (d *desk) listed(text string) string {
	d.t.Helper()
	var out strings.Builder
	for line := range strings.Lines(text) {
		var m goldenMessage
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			d.t.Fatal(err)
		}
		if err := dial.PrintJSON(&out, m); err != nil {
			d.t.Fatal(err)
		}
	}
	return out.String()
}

// goldenLarge is a body that is stored in several pieces of the log, in the place of which the list has a word.
var goldenLarge = strings.Repeat("large ", 50_000)

// sessionState returns the state of a session that nobody holds.
func (d *desk) sessionState(queue, session string) []byte {
	d.t.Helper()
	p := d.propose(queue, &fsm.AcceptSession{ID: session}).Session
	q, err := d.n.node.directory.Get(d.t.Context(), queue)
	if err != nil {
		d.t.Fatal(err)
	}
	a, err := d.n.node.router.Query(d.t.Context(), fsm.Key{Entity: q.ID}, &fsm.GetSessionState{Session: p})
	if err != nil || a.Refusal != fsm.None {
		d.t.Fatalf("%+v, %v", a, err)
	}
	d.propose(queue, &fsm.ReleaseSession{Session: p, Orderly: true})
	return a.State
}

// fill makes one of everything that a data directory keeps.
func (d *desk) fill() {
	queue := func(args ...string) { d.must(client.NewQueueCommand(), "", append([]string{"create"}, args...)...) }
	queue("orders", "--max-delivery-count", "1")
	queue("groups", "--session")
	queue("wide", "--partitioned")
	file := filepath.Join(d.t.TempDir(), "entities.json")
	if err := os.WriteFile(file, []byte(goldenEntities), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.must(client.NewEntitiesCommand(), "", "apply", file)
	d.must(client.NewSendCommand(), "dies", "orders")
	d.must(client.NewReceiveCommand(), "", "orders", "--deadletter", "--reason", "tried")
	d.must(client.NewSendCommand(), "first", "orders", "--property", "colour=red")
	d.must(client.NewSendCommand(), goldenLarge, "orders")
	d.at("orders", "far", "", time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, body := range []string{"a1", "a2", "b1"} {
		d.must(client.NewSendCommand(), body, "groups", "--session", body[:1])
	}
	p := d.propose("groups", &fsm.AcceptSession{ID: "a"}).Session
	first := d.propose("groups", &fsm.Lock{Session: p, Max: 1}).Locked
	d.propose("groups", &fsm.Settle{Session: p, Items: []fsm.SettleItem{{Token: first[0].Token, Verdict: fsm.Defer}}})
	d.propose("groups", &fsm.SetSessionState{Session: p, State: []byte("state of a")})
	d.propose("groups", &fsm.ReleaseSession{Session: p, Orderly: true})
	for i := range 8 {
		d.must(client.NewSendCommand(), fmt.Sprintf("wide %d", i), "wide", "--partition-key", fmt.Sprint(i))
	}
	d.must(client.NewSendCommand(), "forwarded", "first")
	d.must(client.NewSendCommand(), "cheap", "prices", "--property", "colour=red")
	d.must(client.NewSendCommand(), "dear", "prices", "--property", "colour=blue")
}

const goldenEntities = `{"UserConfig": {"Namespaces": [{"Name": "n",
  "Queues": [{"Name": "second"}, {"Name": "first", "Properties": {"ForwardTo": "second"}}],
  "Topics": [{"Name": "prices", "Subscriptions": [{"Name": "cheap", "Rules": [{"Name": "red", "Properties": {
    "FilterType": "Sql", "SqlFilter": {"SqlExpression": "colour = 'red'"},
    "Action": {"SqlExpression": "SET seen = 1"}}}]}]}]}]}}`

// writeGoldenData writes a data directory and the list of what is in it.
func writeGoldenData(t *testing.T, name string) {
	dir := t.TempDir()
	cfg := nodeConfig(t, func(c *Config) { c.DataDir = dir })
	l := &liveNode{node: startNode(t, cfg)}
	l.host = l.doors.clients[0].listener.Addr().String()
	d := deskAt(t, l)
	d.fill()
	for len(d.bodies("peek", "second")) == 0 { // it is on its way
		time.Sleep(10 * time.Millisecond)
	}
	for p := range fsm.PartitionID(cfg.Partitions + 1) {
		if err := l.node.host.Replica(p).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	d.must(client.NewSendCommand(), "behind the snapshot", "orders") // this one is in the log alone
	d.must(client.NewQueueCommand(), "", "create", "late")
	contents := d.contents()
	stopNode(t, l.node)
	packGoldenData(t, dir, name+".tar.gz")
	if err := os.WriteFile(name+".txt", []byte(contents), 0o644); err != nil {
		t.Fatal(err)
	}
}

// packGoldenData leaves out what a node makes anew, such as keys.
func packGoldenData(t *testing.T, dir, file string) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	zip, _ := gzip.NewWriterLevel(out, gzip.BestCompression)
	pack := tar.NewWriter(zip)
	skip := []string{"LOCK", "BALLAST", "ports.json", "tls"}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case slices.Contains(skip, name):
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case e.IsDir():
			return pack.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o700})
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := pack.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(b))}); err != nil {
			return err
		}
		_, err = pack.Write(b)
		return err
	})
	for _, err := range []error{err, pack.Close(), zip.Close(), out.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackGoldenData(t *testing.T, file, dir string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	pack := tar.NewReader(zip)
	for {
		h, err := pack.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(pack); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
