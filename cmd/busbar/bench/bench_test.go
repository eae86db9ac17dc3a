package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func TestHistogramPercentilesAreWithinABucketOfTheTruth(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(rnd.Uint64N(1 << (10 + rnd.Uint64N(30))))
		h.record(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, p := range []float64{0.1, 10, 50, 90, 99, 99.9, 100} {
		want := all[max(int(p/100*float64(len(all))+0.5), 1)-1]
		got := h.percentile(p)
		if got < want || float64(got) > float64(want)*(1+1.0/64)+1 {
			t.Errorf("p%v is %d, want %d", p, got, want)
		}
	}
	var sum histogram
	sum.add(&h)
	sum.add(&h)
	if sum.total != 2*h.total || sum.percentile(50) != h.percentile(50) || sum.max != h.max {
		t.Error("two of the same add up to another distribution")
	}
}

func TestHistogramHoldsEveryDuration(t *testing.T) {
	for _, d := range []time.Duration{-5, 0, 1, 127, 128, 129, 1<<63 - 1} {
		var h histogram
		h.record(d)
		if got := h.percentile(50); got != max(d, 0) {
			t.Errorf("%d became %d", d, got)
		}
	}
	var none histogram
	if none.percentile(99) != 0 || none.spread() != nil {
		t.Error("an empty histogram knows a percentile")
	}
}

func TestBucketsAreInOrderAndMeet(t *testing.T) {
	for i := range histogramBuckets - 1 {
		if top := bucketTop(i); bucketOf(top) != i || bucketOf(top+1) != i+1 {
			t.Fatalf("bucket %d ends at %d, which is in %d, and the next value in %d",
				i, top, bucketOf(top), bucketOf(top+1))
		}
	}
}

func TestProcessCounters(t *testing.T) {
	user, system, err := parseStat([]byte("7 (a) b ) c) S 1 7 7 0 -1 4194560 1 2 3 4 250 31 0 0 20 0 9 0 5 6 7\n"))
	if err != nil || user != 2500*time.Millisecond || system != 310*time.Millisecond {
		t.Errorf("got %v and %v, %v", user, system, err)
	}
	for _, bad := range []string{"", "7", "7 (a", "7 (a) S 1 2", "7 (a) S 1 7 7 0 -1 4 1 2 3 4 x 31 0"} {
		if _, _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	disks := "   8  0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 600 17\n" +
		" 253  0 dm-0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 600 17\n" +
		"   8 16 sdb 1 2 3 4 5 6 7 8 9 10 11\n"
	if got := parseFlushes([]byte(disks)); got != 600 {
		t.Errorf("got %d flushes, want 600", got)
	}
	if got := parsePairs([]byte("syscw: 12\nrubbish\nwrite_bytes: 4096\n")); got["syscw"] != 12 || got["write_bytes"] != 4096 {
		t.Errorf("got %v", got)
	}
	own, err := readUsage([]int{os.Getpid()})
	if err != nil || own.User+own.System < 0 || own.Switches == 0 || own.Resident < 1<<20 {
		t.Errorf("own usage: %+v, %v", own, err)
	}
	if _, err := readUsage([]int{1 << 30}); err == nil {
		t.Error("a process that does not exist has used nothing")
	}
}

func TestIdleTellsWhatAProcessTakes(t *testing.T) {
	c := NewCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs([]string{"--mode", "idle", "--duration", "100ms", "--pid", strconv.Itoa(os.Getpid()), "-o", "row", "--name", "quiet"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var cpu, switches, memory float64
	if _, err := fmt.Sscanf(out.String(), "| quiet | %f | %f | %f |", &cpu, &switches, &memory); err != nil || memory < 1 {
		t.Errorf("%q: %v", out.String(), err)
	}
}

func TestLinksTakeQueuesInTurn(t *testing.T) {
	one, some := loadConfig{Queue: "q", Queues: 1}, loadConfig{Queue: "q", Queues: 3}
	for i, want := range []string{"q-1", "q-2", "q-3", "q-1"} {
		if got := some.queue(i); got != want || one.queue(i) != "q" {
			t.Errorf("link %d is of %s, want %s; with one queue of %s", i, got, want, one.queue(i))
		}
	}
}

func TestBenchRefusesWhatCannotBeMeant(t *testing.T) {
	for _, args := range [][]string{
		{"--mode", "storm"}, {"--settle", "third"}, {"--size", "15"}, {"--connections", "0"},
		{"--rate", "-1"}, {"--duration", "1ms"}, {"--credit", "0"}, {"--backlog", "-1"}, {"--mode", "idle"}, {"--queues", "0"}, {"--queues", "2"}, {"--queues", "2", "--senders", "2"},
		{"--baseline", "nothing"}, {"--baseline", "raft", "--nodes", "2"}, {"--output", "xml"},
		{"--url", "http://h"}, {"--url", "amqp://h"}, {"q", "--url", "amqp://h", "--create"},
		{"q", "--url", "amqp://h", "--host", "h:1"},
	} {
		c := NewCommand()
		c.SetArgs(args)
		c.SilenceErrors, c.SilenceUsage = true, true
		if code := exit.Code(c.ExecuteContext(t.Context())); code != exit.Usage {
			t.Errorf("%v: exit code %d, want %d", args, code, exit.Usage)
		}
	}
}

// benchFront runs the load generator against the front end in memory and returns its report.
func benchFront(t *testing.T, sessions bool, change func(*loadConfig)) *report {
	t.Helper()
	addr, stop, err := startFrontend(sessions)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	cfg := &loadConfig{Mode: "cycle", Queue: frontendQueue, Queues: 1, Duration: 2 * time.Second,
		Connections: 2, Senders: 2, Size: 64, Credit: 50, InFlight: 50, Backlog: 100,
		Settle: "first", Concurrency: 8, PIDs: []int{os.Getpid()}}
	change(cfg)
	if err := cfg.resolve(); err != nil {
		t.Fatal(err)
	}
	d := &dialer{limit: 10 * time.Second, targets: []*dial.Target{
		{Host: addr, Plain: true, KeyName: frontendKeyName, Key: frontendKey}}}
	r, err := measure(t.Context(), cfg, d, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBenchMeasuresEveryKindOfLoad(t *testing.T) {
	cases := []struct {
		name     string
		sessions bool
		change   func(*loadConfig)
		check    func(*report) bool
	}{
		{"a send is confirmed and not received", false, func(c *loadConfig) { c.Mode = "send" },
			func(r *report) bool { return r.Sent > 0 && r.Received == 0 && r.Confirm.Count > 0 }},
		{"a cycle sends, receives and settles", false, func(c *loadConfig) {},
			func(r *report) bool {
				return r.Settled > 0 && r.Settle == nil && r.EndToEnd.Count > 0 && r.Cost != nil
			}},
		{"settle second waits for the broker's answer", false, func(c *loadConfig) { c.Settle = "second" },
			func(r *report) bool { return r.Settle.Count > 0 }},
		{"receive-and-delete settles nothing", false, func(c *loadConfig) { c.Settle = "delete" },
			func(r *report) bool { return r.Settled > 0 && r.Settle == nil }},
		{"receive drains what was preloaded, and ends", false, func(c *loadConfig) {
			c.Mode, c.Preload, c.Duration = "receive", 500, time.Minute
		}, func(r *report) bool {
			return r.Seconds < 60 && int(r.Settled*r.Seconds+0.5) >= 500 && r.Sent == 0
		}},
		{"more sessions are filled than there could be receivers", true, func(c *loadConfig) {
			c.Mode, c.Sessions, c.SessionMessages = "send", maxWorkers+1, 1
		}, func(r *report) bool { return r.Sent > 0 && r.Received == 0 }},
		{"sessions are accepted in turn, with their state", true, func(c *loadConfig) {
			c.Sessions, c.Receivers, c.SessionMessages, c.SessionState = 4, 2, 10, true
		}, func(r *report) bool { return r.Settled > 0 && r.EndToEnd.Count > 0 }},
		{"a rate is kept, and latency counts from when a message was due", false, func(c *loadConfig) {
			c.Mode, c.Rate = "latency", 500
		}, func(r *report) bool {
			const late = 50 // counted between reading the clock and the counter
			return r.EndToEnd.Count > 0 && r.Sent*r.Seconds < 500*r.Seconds+late
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := benchFront(t, c.sessions, c.change)
			if !c.check(r) {
				text, _ := json.Marshal(r)
				t.Errorf("got %s", text)
			}
			for _, output := range []string{"table", "json", "row"} {
				var out bytes.Buffer
				if err := r.print(&out, output); err != nil || !strings.HasSuffix(out.String(), "\n") {
					t.Errorf("%s: %q, %v", output, out.String(), err)
				}
			}
		})
	}
}

func TestBaselineOfRaftCommits(t *testing.T) {
	cfg := &loadConfig{Mode: "cycle", Duration: 100 * time.Millisecond, Size: 64, InFlight: 10}
	for _, n := range []int{1, 3} {
		r, err := measureRaft(t.Context(), cfg, n)
		if err != nil {
			t.Fatal(err)
		}
		if r.Entries <= 0 || r.Settled <= 0 || r.Confirm.Count == 0 {
			t.Errorf("%d voters: %+v", n, r)
		}
	}
}
