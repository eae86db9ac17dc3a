package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/fsm"
)

// auditNode starts a node of its own with one partition.
func auditNode(t *testing.T, dir string) *node {
	t.Helper()
	given := map[string][]string{"dev": {"true"}, "data-dir": {dir}, "partitions": {"1"},
		"amqp-listen": {"127.0.0.1:0"}, "tls-listen": {"127.0.0.1:0"}, "ops-listen": {"127.0.0.1:0"},
		"peer-listen": {"127.0.0.1:0"}, "gossip-listen": {"127.0.0.1:0"}, "node-id": {"n1"}}
	cfg, err := load("", given, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNode(t.Context(), cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	for n.host.Ready(t.Context()) != nil {
		time.Sleep(time.Millisecond)
	}
	return n
}

func debugCommand(args ...string) (string, error) {
	var out bytes.Buffer
	c := client.NewDebugCommand(auditDirs, recoverDirs)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

// An audit of a node that serves, and of its directory when it is stopped; a flipped bit of a body is
// found by both, and names the message.
func TestAuditOfANodeAndOfItsDirectory(t *testing.T) {
	dir := t.TempDir()
	n := auditNode(t, dir)
	fillQueue(t, n)
	ops := "http://" + n.doors.ops.Addr().String()
	out, err := debugCommand("audit", "--ops", ops)
	if err != nil || !strings.Contains(out, "well") || !strings.Contains(out, " 50 ") {
		t.Fatalf("of a node that is well: %v\n%s", err, out)
	}
	if out, err = debugCommand("audit", "--data-dir", dir); err == nil {
		t.Errorf("the directory of a node that runs was opened:\n%s", out)
	}
	if _, err = debugCommand("audit", "--data-dir", t.TempDir()); err == nil {
		t.Error("an empty directory was audited")
	}
	stop, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.close(stop); err != nil {
		t.Fatal(err)
	}
	if out, err = debugCommand("audit", "--data-dir", dir); err != nil || !strings.Contains(out, " 50 ") {
		t.Fatalf("of a directory that is well: %v\n%s", err, out)
	}
	n = auditNode(t, dir)
	d, err := n.directory.Get(t.Context(), "orders")
	if err == nil { // who answers has its log replayed, so there is something to write
		_, err = n.router.Query(t.Context(), fsm.Key{Entity: d.ID}, &fsm.Counts{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := n.host.Replica(1).Snapshot(); err != nil { // or the log would bring the body again
		t.Fatal(err)
	}
	if err := n.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	flipBody(t, dir)
	out, err = debugCommand("audit", "--data-dir", dir)
	if err == nil || !strings.Contains(err.Error(), "message") {
		t.Fatalf("of a flipped bit: %v\n%s", err, out)
	}
	n = auditNode(t, dir)
	ops = "http://" + n.doors.ops.Addr().String()
	out, err = debugCommand("audit", "--ops", ops, "-o", "json")
	if err == nil || !strings.Contains(out, `"problems":["`) {
		t.Errorf("of a node that serves it: %v\n%s", err, out)
	}
	if err := n.close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// fillQueue sends fifty messages that say what they are.
func fillQueue(t *testing.T, n *node) {
	t.Helper()
	d, err := n.directory.Create(t.Context(), fsm.Descriptor{Kind: fsm.Queue, Name: "orders",
		LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30,
		DefaultTTL: fsm.Unlimited, DuplicateWindow: 600_000, AutoDeleteOnIdle: fsm.Unlimited})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		body := []byte(fmt.Sprintf("the body of message %d", i))
		o, err := n.router.Propose(t.Context(), fsm.RequestID{Node: 7, Pump: 1, Counter: uint64(i + 1)},
			fsm.Key{Entity: d.ID}, &fsm.Enqueue{Messages: []fsm.Message{{Body: body}}})
		if err != nil || o.Refusal != fsm.None {
			t.Fatalf("send: %+v, %v", o, err)
		}
	}
}

// flipBody flips a bit of the body of message 17 in every segment of bodies.
func flipBody(t *testing.T, dir string) {
	t.Helper()
	flipped := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.Contains(path, "bodies") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		i := bytes.Index(b, []byte("the body of message 17"))
		if i < 0 {
			return nil
		}
		b[i] ^= 1
		flipped++
		return os.WriteFile(path, b, 0o600)
	})
	if err != nil || flipped == 0 {
		t.Fatalf("flipped %d, %v", flipped, err)
	}
}
