package main

import (
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Messages stay locked behind a receive that keeps its locks. Their tokens renew and settle them over other connections.
func TestLocksAreKeptRenewedAndSettled(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	d.must(client.NewSendCommand(), "", "orders", "a", "b", "c", "d")
	tokens := strings.Fields(d.must(client.NewReceiveCommand(), "", "orders", "--keep-locks", "--max", "4", "-f", "%t "))
	if len(tokens) != 4 {
		t.Fatalf("tokens %v", tokens)
	}
	before := d.must(client.NewQueueCommand(), "", "locks", "orders", "-o", "json")
	for _, step := range []struct {
		line string
		code int
		want string
	}{
		{"receive orders --wait 100ms", 0, "no message in 100ms"},
		{"renew orders " + tokens[0] + " " + tokens[1], 0, tokens[1] + "  20"},
		{"renew orders " + tokens[0] + " -o json", 0, `[{"lockToken":"` + tokens[0] + `","lockedUntil":"`},
		{"settle orders " + tokens[0], 0, "completed 1 message of orders"},
		{"settle orders " + tokens[0], exit.Conflict, "settle"},
		{"renew orders " + tokens[0], exit.Conflict, "renew"},
		{"settle orders " + tokens[1] + " --defer", 0, "deferred 1 message"},
		{"settle orders " + tokens[2] + " --deadletter --reason why", 0, "dead-lettered 1 message"},
		{"settle orders " + tokens[3] + " --abandon", 0, "abandoned 1 message"},
		{"peek orders -f %v:%s:%D,", 0, "b:deferred:1,d:active:1,"},
		{"peek orders --dlq -f %v:%r", 0, "c:why"},
		{"settle orders nonsense", exit.Usage, "is no token of a lock"},
		{"renew orders", exit.Usage, "--keep-locks prints them"},
		{"receive orders --keep-locks --delete", exit.Failed, "delete keep-locks"},
	} {
		if out, code := d.line(step.line); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("busbar %s: %d %q, want %d %q", step.line, code, out, step.code, step.want)
		}
	}
	if strings.Count(before, "\n") != 4 {
		t.Errorf("the locks before: %s", before)
	}
}

// The empty id names a session like any other, also where deferred messages are received.
func TestDeferredMessagesOfTheEmptySession(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "grouped", "--session")
	d.must(client.NewSendCommand(), "", "grouped", "hers", "--session", "")
	d.must(client.NewSendCommand(), "", "grouped", "others", "--session", "s")
	for _, session := range []string{"", "s"} {
		d.must(client.NewReceiveCommand(), "", "grouped", "--session", session, "--defer")
	}
	if got := d.must(client.NewReceiveCommand(), "", "grouped", "--session", "", "--deferred", "--max", "5", "-f", "%v,"); got != "hers," {
		t.Errorf("received %q", got)
	}
	if got := d.must(client.NewPeekCommand(), "", "grouped", "-f", "%v,"); got != "others," {
		t.Errorf("left %q", got)
	}
}
