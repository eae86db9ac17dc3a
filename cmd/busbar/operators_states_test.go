package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm"
)

// propose does to a queue what no command of an operator does.
func (d *desk) propose(queue string, c fsm.Command) fsm.Outcome {
	d.t.Helper()
	q, err := d.n.node.directory.Get(d.t.Context(), queue)
	if err != nil {
		d.t.Fatal(err)
	}
	o, err := d.n.node.router.Propose(d.t.Context(), fsm.RequestID{}, fsm.Key{Entity: q.ID}, c)
	if err != nil || o.Refusal != fsm.None {
		d.t.Fatalf("%T: %+v, %v", c, o, err)
	}
	return o
}

// schedule sends a message that comes in an hour.
func (d *desk) schedule(queue, body, session string) {
	d.t.Helper()
	d.at(queue, body, session, time.Now().Add(time.Hour))
}

// at sends a message that comes at a time; session is "" for none.
func (d *desk) at(queue, body, session string, when time.Time) {
	d.t.Helper()
	p := d.n.cfg.Policies[0]
	conn, err := amqp.Dial(d.t.Context(), "amqp://"+d.n.host, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(p.Name, string(p.Primary))})
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.NewSession(d.t.Context(), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := s.NewSender(d.t.Context(), queue, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	m := amqp.NewMessage([]byte(body))
	if session != "" {
		m.Properties = &amqp.MessageProperties{GroupID: &session}
	}
	m.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": when}
	if err := out.Send(d.t.Context(), m, nil); err != nil {
		d.t.Fatal(err)
	}
}

// bodies are those of what a command listed.
func (d *desk) bodies(args ...string) []string {
	d.t.Helper()
	var all []string
	for _, m := range d.lines(d.must(client.NewQueueCommand(), "", append(args, "--json")...)) {
		all = append(all, fmt.Sprint(m["body"]))
	}
	return all
}

// S-83, S-84, S-272: an operator asks for messages by state and by session, and for sessions.
func TestOperatorsAskByStateAndSession(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders", "--session")
	for _, m := range []string{"a1", "a2", "a3", "b1", "b2"} {
		d.must(client.NewSendCommand(), m, "orders", "--session", m[:1])
	}
	p := d.propose("orders", &fsm.AcceptSession{ID: "a"}).Session
	first := d.propose("orders", &fsm.Lock{Session: p, Max: 2}).Locked
	d.propose("orders", &fsm.Settle{Session: p, Items: []fsm.SettleItem{{Token: first[0].Token, Verdict: fsm.Defer}}})
	d.propose("orders", &fsm.SetSessionState{Session: p, State: []byte("state")})
	d.schedule("orders", "c1", "c")
	for _, c := range []struct {
		args, want []string
	}{
		{nil, []string{"a1", "a2", "a3", "b1", "b2", "c1"}},
		{[]string{"--state", "active"}, []string{"a2", "a3", "b1", "b2"}},
		{[]string{"--state", "deferred"}, []string{"a1"}},
		{[]string{"--state", "scheduled"}, []string{"c1"}},
		{[]string{"--state", "deferred,scheduled"}, []string{"a1", "c1"}},
		{[]string{"--session", "a"}, []string{"a1", "a2", "a3"}},
		{[]string{"--session", "a", "--state", "active"}, []string{"a2", "a3"}},
		{[]string{"--session", "nobody"}, nil},
		{[]string{"--from", "4", "--max", "1"}, []string{"b1"}},
	} {
		if got := d.bodies(append([]string{"peek", "orders"}, c.args...)...); !slices.Equal(got, c.want) {
			t.Errorf("peek %v: %q, want %q", c.args, got, c.want)
		}
	}
	// What is scheduled makes no session, yet.
	if got := d.must(client.NewQueueCommand(), "", "sessions", "orders"); got != "SESSION\na\nb\n" {
		t.Errorf("sessions: %q", got)
	}
	hour := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if got := d.must(client.NewQueueCommand(), "", "sessions", "orders", "--updated-after", hour); got != "SESSION\na\n" {
		t.Errorf("sessions with a state of late: %q", got)
	}
	locks := d.lines(d.must(client.NewQueueCommand(), "", "locks", "orders", "--json"))
	if len(locks) != 1 || locks[0]["sequenceNumber"] != 2. || locks[0]["sessionId"] != "a" {
		t.Errorf("locks: %v", locks)
	}
}

// S-178: what dead letters are sent again an operator chooses by reason, session and time.
func TestOperatorsChooseWhatIsSentAgain(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders", "--session")
	for _, m := range []string{"a1", "a2", "b1", "b2"} {
		d.must(client.NewSendCommand(), m, "orders", "--session", m[:1])
		d.must(client.NewReceiveCommand(), "", "orders", "--session", m[:1], "--deadletter", "--reason", "r"+m[1:])
	}
	again := func(want string, args ...string) {
		t.Helper()
		out := d.must(client.NewDeadLetterCommand(), "", append([]string{"redrive", "orders", "--json"}, args...)...)
		if got := fmt.Sprint(d.lines(out)[0]["moved"]); got != want {
			t.Errorf("redrive %v moved %s, want %s", args, got, want)
		}
	}
	hour := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	again("0", "--until", hour)
	again("0", "--session", "a", "--reason", "other")
	again("1", "--session", "a", "--reason", "r2")
	again("1", "--session", "a")
	again("0", "--session", "a")
	again("2", "--from", hour, "--rate", "1000")
	if got := d.bodies("peek", "orders"); !slices.Equal(got, []string{"a2", "a1", "b1", "b2"}) {
		t.Errorf("the queue has %q", got)
	}
}

// S-263, S-265: a purge at a rate deletes what waited, and says how to go on when a node does not answer.
func TestOperatorsPurgeAtARate(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	for range 5 {
		d.must(client.NewSendCommand(), "x", "orders")
	}
	if out := d.must(client.NewQueueCommand(), "", "purge", "orders", "--yes", "--rate", "1000", "--json"); !strings.Contains(out, `"deleted":5`) {
		t.Errorf("purge: %s", out)
	}
	out, code := d.run(client.NewQueueCommand(), "", "purge", "orders", "--yes", "--rate", "7", "--session", "s")
	if code != exit.Usage || !strings.Contains(out, "stopped after 0 messages") ||
		!strings.Contains(out, "go on with: busbar queue purge orders --session s --rate 7 --yes") {
		t.Errorf("%d %s", code, out)
	}
}
