package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"

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
	m.Properties = &amqp.MessageProperties{GroupID: &session}
	m.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(time.Hour)}
	if err := out.Send(d.t.Context(), m, nil); err != nil {
		d.t.Fatal(err)
	}
}

// bodies are those of what a command listed.
func (d *desk) bodies(args ...string) []string {
	d.t.Helper()
	var all []string
	for _, m := range d.lines(d.must(newQueueCommand(), "", append(args, "--json")...)) {
		all = append(all, fmt.Sprint(m["body"]))
	}
	return all
}

// S-83, S-84, S-272: an operator asks for messages by state and by session, and for sessions.
func TestOperatorsAskByStateAndSession(t *testing.T) {
	d := newDesk(t)
	d.must(newQueueCommand(), "", "create", "orders", "--session")
	for _, m := range []string{"a1", "a2", "a3", "b1", "b2"} {
		d.must(newSendCommand(), m, "orders", "--session", m[:1])
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
	if got := d.must(newQueueCommand(), "", "sessions", "orders"); got != "SESSION\na\nb\n" {
		t.Errorf("sessions: %q", got)
	}
	hour := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if got := d.must(newQueueCommand(), "", "sessions", "orders", "--updated-after", hour); got != "SESSION\na\n" {
		t.Errorf("sessions with a state of late: %q", got)
	}
	locks := d.lines(d.must(newQueueCommand(), "", "locks", "orders", "--json"))
	if len(locks) != 1 || locks[0]["sequenceNumber"] != 2. || locks[0]["sessionId"] != "a" {
		t.Errorf("locks: %v", locks)
	}
}

// S-178: what dead letters are sent again an operator chooses by reason, session and time.
func TestOperatorsChooseWhatIsSentAgain(t *testing.T) {
	d := newDesk(t)
	d.must(newQueueCommand(), "", "create", "orders", "--session")
	for _, m := range []string{"a1", "a2", "b1", "b2"} {
		d.must(newSendCommand(), m, "orders", "--session", m[:1])
		d.must(newReceiveCommand(), "", "orders", "--session", m[:1], "--deadletter", "--reason", "r"+m[1:])
	}
	again := func(want string, args ...string) {
		t.Helper()
		out := d.must(newDeadLetterCommand(), "", append([]string{"redrive", "orders", "--json"}, args...)...)
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

// A rate is kept over the whole of a command, and one that is interrupted knows how far it came.
func TestARateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := redriveFlags{dead: true, rate: 100}
		values := url.Values{}
		began, left := time.Now(), uint64(1_000)
		stopAt := uint64(0)
		next := func(context.Context) (step, error) {
			most, err := strconv.ParseUint(values.Get("max"), 10, 64)
			if err != nil || most > 50 {
				t.Errorf("a request for %q at a time", values.Get("max"))
			}
			if done := 1_000 - left; time.Since(began) < time.Duration(done)*10*time.Millisecond {
				t.Errorf("%d messages after %s", done, time.Since(began))
			}
			s := step{Moved: min(most, left), Until: "then"}
			if left -= s.Moved; left > 0 {
				s.Next = strconv.FormatUint(left, 10)
			}
			if left == stopAt {
				cancel()
			}
			return s, nil
		}
		moved, err := r.loop(ctx, values, newBar(io.Discard, left), next)
		if took := time.Since(began); err != nil || moved != 1_000 || took > 10*time.Second {
			t.Errorf("%d moved in %s, %v", moved, took, err)
		}
		began, left, stopAt = time.Now(), 1_000, 800
		moved, err = r.loop(ctx, values, newBar(io.Discard, left), next)
		if !errors.Is(err, context.Canceled) || moved == 0 || moved > 200 || values.Get("cursor") == "" || values.Get("until") != "then" {
			t.Errorf("interrupted: %d moved, %v, the cursor is %q", moved, err, values.Get("cursor"))
		}
	})
}

// A purge keeps its rate, and one that is interrupted goes on without what has come meanwhile (S-265).
func TestAPurgeKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := purgeFlags{dead: true, session: "it's", rate: 1_000}
		values := url.Values{"session": {p.session}}
		began, left := time.Now(), uint64(10_000)
		next := func(context.Context) (step, error) {
			if values.Get("max") != "500" {
				t.Errorf("a request for %q at a time", values.Get("max"))
			}
			s := step{Deleted: min(500, left), Before: "2026-01-31T00:00:00Z", Skipped: 1}
			if left -= s.Deleted; left > 0 {
				s.Next = "0."
			}
			if left == 4_000 {
				cancel()
			}
			return s, nil
		}
		deleted, skipped, err := p.loop(ctx, values, newBar(io.Discard, left), next)
		if !errors.Is(err, context.Canceled) || deleted != 6_000 || skipped != 12 || time.Since(began) < 5*time.Second {
			t.Errorf("interrupted after %s: %d deleted, %d skipped, %v", time.Since(began), deleted, skipped, err)
		}
		if got, want := p.resume(values), ` --dlq --session 'it'\''s' --before 2026-01-31T00:00:00Z --rate 1000 --yes`; got != want {
			t.Errorf("goes on with %s, want %s", got, want)
		}
		deleted, _, err = p.loop(t.Context(), values, newBar(io.Discard, left), next)
		if err != nil || deleted != 4_000 || time.Since(began) > 10*time.Second {
			t.Errorf("%d deleted in %s, %v", deleted, time.Since(began), err)
		}
	})
}

// S-263, S-265: a purge at a rate deletes what waited, and says how to go on when a node does not answer.
func TestOperatorsPurgeAtARate(t *testing.T) {
	d := newDesk(t)
	d.must(newQueueCommand(), "", "create", "orders")
	for range 5 {
		d.must(newSendCommand(), "x", "orders")
	}
	if out := d.must(newQueueCommand(), "", "purge", "orders", "--yes", "--rate", "1000", "--json"); !strings.Contains(out, `"deleted":5`) {
		t.Errorf("purge: %s", out)
	}
	out, code := d.run(newQueueCommand(), "", "purge", "orders", "--yes", "--rate", "7", "--session", "s")
	if code != exit.Usage || !strings.Contains(out, "stopped after 0 messages") ||
		!strings.Contains(out, "go on with: busbar queue purge orders --session s --rate 7 --yes") {
		t.Errorf("%d %s", code, out)
	}
}
