package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm"
)

// desk is an operator's terminal at a running node.
type desk struct {
	t        *testing.T
	n        *liveNode
	cs, base string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	n := openLive(t, nodeConfig(t, nil))
	for n.node.host.Ready(t.Context()) != nil || n.node.host.ClusterVersion() < fsm.NewestVersion {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the node does not become ready")
		}
	}
	return deskAt(t, n)
}

func deskAt(t *testing.T, n *liveNode) *desk {
	p := n.cfg.Policies[0]
	return &desk{t: t, n: n, base: "http://" + n.doors.ops.Addr().String(),
		cs: fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;UseDevelopmentEmulator=true",
			n.host, p.Name, string(p.Primary))}
}

// run executes one command of the operator and returns what it printed and its exit code.
func (d *desk) run(c *cobra.Command, stdin string, args ...string) (string, int) {
	d.t.Helper()
	args = append(args, "--connection-string", d.cs)
	if c.Name() == "dlq" || strings.Contains(" locks history sessions peek purge options move transactions suspend resume ", " "+args[0]+" ") && c.Name() == "queue" {
		args = append(args, "--ops", d.base)
	}
	return execute(d.t, c, stdin, args...)
}

func (d *desk) must(c *cobra.Command, stdin string, args ...string) string {
	d.t.Helper()
	out, code := d.run(c, stdin, args...)
	if code != 0 {
		d.t.Fatalf("%s %v: %d %s", c.Name(), args, code, out)
	}
	return out
}

// lines decodes JSON lines.
func (d *desk) lines(out string) (all []map[string]any) {
	d.t.Helper()
	for line := range strings.Lines(out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			d.t.Fatalf("%v in %q", err, line)
		}
		all = append(all, v)
	}
	return all
}

// S-265, S-272, S-274, S-275: what operators do with a queue, on a running node.
func TestOperatorsCommands(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders", "--max-delivery-count", "1")
	d.must(client.NewQueueCommand(), "", "options", "orders", "--processed-history", "--accepted-history", "--retry-min", "1s", "--retry-jitter", "5")
	if out := d.must(client.NewQueueCommand(), "", "options", "orders", "--retry-max", "1m"); !strings.Contains(out, "processed-history  true") ||
		!strings.Contains(out, "retry-min          1s") || !strings.Contains(out, "retry-max          1m0s") || strings.Contains(out, "Millis") {
		t.Errorf("options:\n%s", out)
	}
	for _, text := range []string{"one", "two", "three", "four"} {
		d.must(client.NewSendCommand(), text, "orders")
	}
	d.must(client.NewReceiveCommand(), "", "orders", "--max", "1")
	if got := d.lines(d.must(client.NewQueueCommand(), "", "history", "orders", "--json")); len(got) != 1 {
		t.Errorf("processed: %v", got)
	}
	if got := d.lines(d.must(client.NewQueueCommand(), "", "history", "orders", "--kind", "accepted", "--json", "--max", "3")); len(got) != 3 ||
		got[0]["end"] != "completed" {
		t.Errorf("accepted: %v", got)
	}
	if got := d.lines(d.must(client.NewQueueCommand(), "", "peek", "orders", "--state", "active", "--json", "--max", "2")); len(got) != 2 ||
		got[0]["body"] != "two" {
		t.Errorf("peek: %v", got)
	}
	// S-305: the same from the replica of the node that is asked, and nothing older than was seen.
	out := d.must(client.NewQueueCommand(), "", "peek", "orders", "--stale", "--max", "2")
	_, handle, _ := strings.Cut(out, ", handle ")
	handle, _, _ = strings.Cut(handle, "\n")
	if !strings.Contains(out, "two") || !strings.Contains(out, "age ") || !strings.HasPrefix(handle, "0.") {
		t.Errorf("stale peek: %q", out)
	}
	d.must(client.NewQueueCommand(), "", "history", "orders", "--stale", "--at-least", handle)
	if out, code := d.run(client.NewQueueCommand(), "", "sessions", "orders", "--stale", "--at-least", "0.1000000000"); code != exit.Failed ||
		!strings.Contains(out, "503") || !strings.Contains(out, "not yet 1000000000") {
		t.Errorf("beyond everything: %d %s", code, out)
	}
	if _, code := d.run(client.NewQueueCommand(), "", "peek", "orders", "--at-least", handle); code != exit.Usage {
		t.Errorf("--at-least alone: %d", code)
	}
	if out := d.must(client.NewQueueCommand(), "", "locks", "orders"); strings.TrimSpace(out) != "NUMBER  TOKEN  TAKEN  UNTIL  STATE  SESSION  MODE  CLIENT  LINK  REMOTE  BY" {
		t.Errorf("locks: %q", out)
	}
	d.must(client.NewReceiveCommand(), "", "orders", "--max", "2", "--deadletter")
	out, code := d.run(client.NewQueueCommand(), "", "purge", "orders", "--dlq")
	if code != exit.Usage || !strings.Contains(out, "holds 2 messages; add --yes") {
		t.Errorf("a purge without --yes: %d %s", code, out)
	}
	if out := d.must(client.NewDeadLetterCommand(), "", "redrive", "orders", "--max", "1", "--json"); !strings.Contains(out, `"moved":1`) {
		t.Errorf("redrive: %s", out)
	}
	if out := d.must(client.NewDeadLetterCommand(), "", "redrive", "orders", "--reason", "none"); !strings.Contains(out, "sent 0 messages") {
		t.Errorf("redrive: %s", out)
	}
	if out := d.must(client.NewQueueCommand(), "", "purge", "orders", "--dlq", "--yes", "--reason", "none"); !strings.Contains(out, "deleted 0 messages") {
		t.Errorf("purge: %s", out)
	}
	if out := d.must(client.NewQueueCommand(), "", "purge", "orders", "--dlq", "--yes"); !strings.Contains(out, "deleted 1 message of orders/$DeadLetterQueue") {
		t.Errorf("purge: %s", out)
	}
	if out := d.must(client.NewQueueCommand(), "", "purge", "orders", "--yes", "--json"); !strings.Contains(out, `"deleted":2`) {
		t.Errorf("purge: %s", out)
	}
}

// S-178, S-212, S-273: what operators move to other entities, on a running node.
func TestOperatorsMoveMessages(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"orders", "archive", "quarantine"} {
		d.must(client.NewQueueCommand(), "", "create", name, "--max-delivery-count", "1")
	}
	for n := range 12 {
		d.must(client.NewSendCommand(), fmt.Sprint(n), "orders")
	}
	d.must(client.NewReceiveCommand(), "", "orders", "--max", "3", "--deadletter")
	if out := d.must(client.NewQueueCommand(), "", "move", "orders", "archive", "--max", "4", "--json"); !strings.Contains(out, `"moved":4`) ||
		!strings.Contains(out, `"onTheirWay":0`) {
		t.Errorf("move: %s", out)
	}
	if out := d.must(client.NewQueueCommand(), "", "move", "orders", "archive", "--rate", "1000"); !strings.Contains(out, "moved 5 messages of orders to archive") {
		t.Errorf("move: %s", out)
	}
	if out := d.must(client.NewDeadLetterCommand(), "", "redrive", "orders", "--to", "quarantine"); !strings.Contains(out,
		"moved 3 messages of orders/$DeadLetterQueue to quarantine") {
		t.Errorf("redrive: %s", out)
	}
	for name, want := range map[string]string{"orders": "", "archive": "3 4 5 6 7 8 9 10 11", "quarantine": "0 1 2"} {
		var bodies []string
		for _, m := range d.lines(d.must(client.NewQueueCommand(), "", "peek", name, "--json")) {
			bodies = append(bodies, fmt.Sprint(m["body"]))
		}
		if got := strings.Join(bodies, " "); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if out := d.must(client.NewQueueCommand(), "", "transactions", "orders", "--ended"); !strings.HasPrefix(out, "ID") {
		t.Errorf("transactions: %s", out)
	}
}

// A topic keeps no messages but scheduled ones, so a look into it names where the others are.
func TestOperatorsLookIntoATopic(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	d.n.put(t, "/trades", "TopicDescription", "")
	if out := d.must(client.NewQueueCommand(), "", "peek", "trades"); !strings.Contains(out, "busbar subscription list trades shows where") {
		t.Errorf("a look into a topic does not name its subscriptions: %s", out)
	}
	if out := d.must(client.NewQueueCommand(), "", "peek", "orders"); strings.Contains(out, "topic") {
		t.Errorf("an empty queue is told as a topic: %s", out)
	}
}

// Every refusal has the exit code that scripts look at, and says what to do.
func TestOperatorsCommandsRefuse(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	d.must(client.NewQueueCommand(), "", "create", "archive")
	for line, want := range map[string]string{
		"queue locks":                                        "2 name a queue",
		"queue locks a b":                                    "2 one entity at a time",
		"queue locks missing":                                `3 no entity "missing"`,
		"queue locks orders --max -1":                        "2 --max must not be negative",
		"queue locks orders -o xml":                          "2 none of table, wide",
		"queue history orders --kind x":                      "2 processed, accepted or releases",
		"queue sessions orders":                              "2 has no sessions",
		"queue sessions orders --updated-after x":            "2 must be a time like",
		"queue peek orders --state locked":                   "2 active, deferred and scheduled",
		"queue peek orders --session s":                      "2 has no sessions",
		"queue purge orders --before x":                      "2 must be a time like",
		"queue purge orders --session s --yes":               "2 has no sessions",
		"queue purge orders --reason x --yes":                "2 add --dlq",
		"queue purge orders --dlq --from x --yes":            "2 must be a time like",
		"queue options orders --retry-jitter 101":            "2 jitterPercent is 101",
		"queue options orders --nonsense":                    "2 unknown flag",
		"dlq redrive orders --until x":                       "2 must be a time like",
		"dlq redrive orders --cursor x":                      "2 go on with: busbar dlq redrive orders --cursor x",
		"dlq":                                                "2 needs a subcommand",
		"dlq redrive orders --to missing":                    `3 no entity "missing" to move to`,
		"queue move orders":                                  "2 takes 2 arguments",
		"queue move orders orders":                           "2 are in orders already",
		"queue move orders missing":                          `3 no entity "missing" to move to`,
		"queue move orders archive --cursor 9.9 --session s": "2 go on with: busbar queue move orders archive --session s --cursor 9.9",
		"queue move orders archive --cursor 9.9 --max 7 --rate 5": "2 go on with: busbar queue move orders archive " +
			"--cursor 9.9 --max 7 --rate 5",
		"queue transactions":                            "2 name a queue",
		"dlq redrive orders --cursor 9.9 --reason it's": `2 --reason 'it'\''s' --cursor 9.9`,
	} {
		words := strings.Fields(line)
		c := client.NewQueueCommand()
		if words[0] == "dlq" {
			c = client.NewDeadLetterCommand()
		}
		var out string
		var code int
		if len(words) == 1 {
			out, code = execute(t, c, "")
		} else {
			out, code = d.run(c, "", words[1:]...)
		}
		status, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(code) != status || !strings.Contains(out, text) {
			t.Errorf("%s: %d %s, want %s", line, code, out, want)
		}
	}
	d.cs = strings.Replace(d.cs, "SharedAccessKey=", "SharedAccessKey=x", 1)
	if out, code := d.run(client.NewQueueCommand(), "", "locks", "orders"); code != exit.Unauthorised {
		t.Errorf("a wrong key: %d %s", code, out)
	}
	d.base = "http://127.0.0.1:1"
	if out, code := d.run(client.NewQueueCommand(), "", "locks", "orders"); code != exit.Failed || !strings.Contains(out, "operations port") {
		t.Errorf("no node: %d %s", code, out)
	}
}
