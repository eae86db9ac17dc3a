package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/doctor"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// background runs a command that goes on, until the test ends or stop is called.
func (d *desk) background(c *cobra.Command, args ...string) (out *bufio.Scanner, said *bufio.Scanner, stop func() error) {
	d.t.Helper()
	read, write := io.Pipe()
	heard, says := io.Pipe()
	c.SetOut(write)
	c.SetErr(says)
	c.SetArgs(append(args, "--connection-string", d.cs))
	c.SilenceErrors, c.SilenceUsage = true, true
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx); write.Close(); says.Close() }()
	stop = func() error {
		cancel()
		go func() { _, _ = io.Copy(io.Discard, read) }()
		go func() { _, _ = io.Copy(io.Discard, heard) }()
		return <-done
	}
	return bufio.NewScanner(read), bufio.NewScanner(heard), stop
}

// Operators read what changes: entities as they are made, changed and deleted, and only the kinds that they ask for.
func TestEventsTellOfEntities(t *testing.T) {
	d := newDesk(t)
	out, said, stop := d.background(client.NewEventsCommand(), "--kind", "entity", "-o", "json", "--ops", d.base)
	if !said.Scan() || said.Text() != "the events are those that node n1 sees" {
		t.Fatalf("said %q", said.Text())
	}
	for _, step := range []struct {
		change string
		args   []string
	}{
		{"created", []string{"create", "orders"}},
		{"changed", []string{"update", "orders", "--max-delivery-count", "3"}},
		{"deleted", []string{"delete", "orders"}},
	} {
		d.must(client.NewQueueCommand(), "", step.args...)
		if !out.Scan() {
			t.Fatal(out.Err())
		}
		var e client.Event
		if err := json.Unmarshal(out.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind != client.EventEntity || e.Entity != "orders" || e.Change != step.change || time.Since(e.At) > time.Minute {
			t.Errorf("event %+v, want %s", e, step.change)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("interrupted: %v", err)
	}

	for target, want := range map[string]int{"/api/events?kind=nonsense": 400, "/api/events?kinds=node": 400} {
		if res, text := d.n.requestTo(t, d.n.opsHost(), "GET", target, "", ""); res.StatusCode != want {
			t.Errorf("%s: %d %s", target, res.StatusCode, text)
		}
	}
	weak := auth.NewToken("http://"+d.n.opsHost()+"/", "nobody", "key", time.Now().Add(time.Hour))
	if res, _ := d.n.requestTo(t, d.n.opsHost(), "GET", "/api/events", "", weak); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d", res.StatusCode)
	}
	if res, _ := d.n.requestTo(t, d.n.opsHost(), "POST", "/api/events", "", ""); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", res.StatusCode)
	}
	if out, code := d.line("events --kind x"); code != exit.Usage || !strings.Contains(out, "want any of leader, node, alarm, entity") {
		t.Errorf("a kind that is none: %d %s", code, out)
	}
}

// A browser reads the same as server-sent events, which end with the node.
func TestEventsAreServerSent(t *testing.T) {
	d := newDesk(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", d.base+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultTransport.RoundTrip(r) // from this host, to a node with --dev: without a token
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if kind := res.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("content type %s", kind)
	}
	in := bufio.NewScanner(res.Body)
	if !in.Scan() || !strings.HasPrefix(in.Text(), `data: {"at":"`) || !strings.Contains(in.Text(), `"kind":"stream","change":"begun"`) {
		t.Errorf("first %q", in.Text())
	}
}

// What differs between two looks is told once, in words.
func TestEventsAreDifferences(t *testing.T) {
	two := 2
	before := &sight{
		leaders:  map[fsm.PartitionID]leaderSeen{0: {"n1", 1}, 1: {"n1", 1}, 2: {"n2", 4}},
		nodes:    map[string]string{"n1": "alive", "n2": "alive", "n4": "left"},
		entities: map[fsm.EntityID]*fsm.Descriptor{1: {ID: 1, Kind: fsm.Queue, Name: "a", Version: 1}, 2: {ID: 2, Kind: fsm.Queue, Name: "b", Version: 1}},
	}
	now := &sight{
		leaders: map[fsm.PartitionID]leaderSeen{0: {"n2", 2}, 1: {"n1", 1}, 2: {"", 5}},
		nodes:   map[string]string{"n1": "alive", "n2": "dead", "n3": "alive"},
		entities: map[fsm.EntityID]*fsm.Descriptor{2: {ID: 2, Kind: fsm.Queue, Name: "b", Version: 2},
			3: {ID: 3, Kind: fsm.Topic, Name: "c", Version: 1}},
	}
	texts := func(events []client.Event) string {
		var all []string
		for _, e := range events {
			all = append(all, e.Kind+" "+e.Change+": "+e.Text)
		}
		return strings.Join(all, "\n")
	}
	if got, want := texts(now.since(before)), `entity deleted: queue a was deleted
entity changed: queue b was changed
entity created: topic c was created
leader lost: partition 2 has no leader, term 5
leader elected: the catalog is led by n2, term 2
node dead: node n2 is dead
node alive: node n3 is alive
node gone: node n4 is not known any more`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	full := doctor.Finding{Code: doctor.CodeDiskFull, Severity: doctor.Alarm, Node: "n1", Says: "the disk is full."}
	lost := doctor.Finding{Code: doctor.CodeNoLeader, Severity: doctor.Alarm, Partition: &two, Says: "partition 2 has no leader."}
	for _, step := range []struct {
		found []doctor.Finding
		want  string
	}{
		{[]doctor.Finding{full}, "alarm raised: alarm: the disk is full."},
		{[]doctor.Finding{full, lost}, "alarm raised: alarm: partition 2 has no leader."},
		{[]doctor.Finding{full, lost}, ""},
		{[]doctor.Finding{lost}, "alarm cleared: over: the disk is full."},
	} {
		if got := texts(now.judge(step.found)); got != step.want {
			t.Errorf("%v: %q, want %q", step.found, got, step.want)
		}
	}
}

// A list is printed again when it has changed, and not otherwise.
func TestAListIsWatched(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	out, _, stop := d.background(client.NewQueueCommand(), "list", "--watch", "--every", "100ms", "-o", "jsonl")
	active := func(want string) {
		t.Helper()
		if !out.Scan() || !strings.Contains(out.Text(), `"active":`+want+",") {
			t.Fatalf("%q, want %s active", out.Text(), want)
		}
	}
	active("0")
	d.must(client.NewSendCommand(), "", "orders", "one", "two")
	for !strings.Contains(out.Text(), `"active":2,`) && out.Scan() {
	}
	active2 := out.Text()
	d.must(client.NewQueueCommand(), "", "create", "zebra")
	if !out.Scan() || out.Text() != active2 || !out.Scan() || !strings.Contains(out.Text(), `"name":"zebra"`) {
		t.Errorf("behind another queue: %q", out.Text())
	}
	if err := stop(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if out, code := d.line("queue list --watch --every 1ms"); code != exit.Usage || !strings.Contains(out, "at least 100ms") {
		t.Errorf("too often: %d %s", code, out)
	}
	if _, code := d.line("queue show none --watch"); code != exit.NotFound {
		t.Errorf("a queue that is not there: %d", code)
	}
}

// top has the entities that change most first.
func TestTopShowsWhatChanges(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"busy", "calm", "full"} {
		d.must(client.NewQueueCommand(), "", "create", name)
	}
	d.must(client.NewSendCommand(), "", "full", "x", "--count", "1000")
	out, _, stop := d.background(client.NewTopCommand(), "--every", "200ms", "-o", "json")
	var rows []struct {
		Name            string
		Active          int
		ActivePerSecond float64
	}
	for rounds := 0; len(rows) == 0 || rows[0].Name != "busy"; rounds++ {
		if rounds == 100 {
			t.Fatalf("top shows %+v", rows)
		}
		d.must(client.NewSendCommand(), "", "busy", "x")
		if !out.Scan() {
			t.Fatal(out.Err())
		}
		if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
			t.Fatal(err)
		}
	}
	if rows[0].ActivePerSecond <= 0 || rows[1].Name != "full" || rows[1].ActivePerSecond != 0 || rows[2].Name != "calm" {
		t.Errorf("top shows %+v", rows)
	}
	if err := stop(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if out, code := d.line("top --once --max 1"); code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, "ENTITY") {
		t.Errorf("once: %d %s", code, out)
	}
}
