package main

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// BenchmarkRestart is the time from the start of a node until it serves, and the memory it has then,
// with a backlog of a million messages of 200 bytes in one partition. Run it with -benchtime=1x.
func BenchmarkRestart(b *testing.B) {
	cfg := restartConfig(b)
	for i, messages := range []int{1_000_000} {
		b.Run(strconv.Itoa(messages), func(b *testing.B) {
			if i == 0 {
				fillNode(b, cfg, messages)
			}
			var rss, heap uint64
			for b.Loop() {
				n := startNode(b, cfg)
				b.StopTimer()
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				heap, rss = m.HeapAlloc, restartResident(b)
				counts, _, err := n.router.Counts(context.Background(), n.directory.View().Entity("backlog"))
				if err != nil || counts.Active != uint64(messages) {
					b.Fatalf("%d messages of %d, %v", counts.Active, messages, err)
				}
				stopNode(b, n)
				b.StartTimer()
			}
			b.ReportMetric(float64(heap)/float64(messages), "heap-B/message")
			b.ReportMetric(float64(rss)/(1<<20), "resident-MiB")
		})
	}
}

func restartConfig(b *testing.B) Config {
	b.Helper()
	given := map[string][]string{"dev": {"true"}, "data-dir": {b.TempDir()}, "partitions": {"1"},
		"amqp-listen": {"127.0.0.1:0"}, "tls-listen": {"127.0.0.1:0"}, "ops-listen": {"127.0.0.1:0"},
		"peer-listen": {"127.0.0.1:0"}, "gossip-listen": {"127.0.0.1:0"}, "node-id": {"n1"}}
	cfg, err := load("", given, func(string) (string, bool) { return "", false })
	if err != nil {
		b.Fatal(err)
	}
	return cfg
}

// startNode returns when the node is ready.
func startNode(b testing.TB, cfg Config) *node {
	b.Helper()
	n, err := openNode(context.Background(), cfg, hclog.NewNullLogger())
	if err != nil {
		b.Fatal(err)
	}
	for n.host.Ready(context.Background()) != nil {
		time.Sleep(time.Millisecond)
	}
	return n
}

func stopNode(b testing.TB, n *node) {
	b.Helper()
	if err := n.close(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func fillNode(b *testing.B, cfg Config, messages int) {
	b.Helper()
	n := startNode(b, cfg)
	defer stopNode(b, n)
	ctx := context.Background()
	d, err := n.directory.Create(ctx, fsm.Descriptor{Kind: fsm.Queue, Name: "backlog",
		LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 40,
		DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited, DuplicateWindow: 600_000})
	if err != nil {
		b.Fatal(err)
	}
	const batch = 500
	body := bytes.Repeat([]byte("body"), 50)
	r := n.host.Replica(d.Partitions[0])
	for sent := 0; sent < messages; sent += batch {
		q := &fsm.Enqueue{Messages: make([]fsm.Message, batch)}
		for i := range q.Messages {
			q.Messages[i] = fsm.Message{MessageID: strconv.Itoa(sent + i), Body: body}
		}
		o, err := r.Propose(ctx, fsm.Request{Entity: d.ID, Command: q})
		if err != nil || o.Refusal != fsm.None {
			b.Fatalf("after %d: %+v, %v", sent, o, err)
		}
	}
}

// restartResident is what the kernel says of this process.
func restartResident(b *testing.B) uint64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc")
	}
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "VmRSS:" {
			kib, _ := strconv.ParseUint(string(f[1]), 10, 64)
			return kib << 10
		}
	}
	return 0
}
