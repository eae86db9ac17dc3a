package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// shell runs the command line of the broker's own binary as a client.
type shell struct {
	*testing.T
	bin  string
	env  []string
	more []string // flags of every call
	// limit bounds a call; 0 for soon.
	limit time.Duration
}

// do runs one command, checks its exit code and returns what it printed.
func (s *shell) do(code int, stdin string, args ...string) string {
	s.Helper()
	out, _ := s.both(code, stdin, args...)
	return out
}

// both is do with what the command said to the standard error.
func (s *shell) both(code int, stdin string, args ...string) (printed, said string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), cmp.Or(s.limit, soon))
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, append(args, s.more...)...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		s.Fatal(err)
	}
	if got != code {
		s.Fatalf("busbar %s: exit code %d, want %d: %s%s", strings.Join(args, " "), got, code, &out, &errs)
	}
	if strings.Contains(errs.String(), "panic") || strings.Contains(errs.String(), cluster.Key) {
		s.Errorf("busbar %s: %s", strings.Join(args, " "), &errs)
	}
	return out.String(), errs.String()
}

// printed is a line of receive or peek.
type printed struct {
	SequenceNumber   int64
	SessionID        *string
	DeliveryCount    int
	DeadLetterReason string
	Properties       map[string]string
	Body             string
}

func (s *shell) messages(args ...string) []printed {
	s.Helper()
	var all []printed
	for line := range strings.Lines(s.do(0, "", append(args, "-o", "json")...)) {
		var p printed
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			s.Fatalf("busbar %s printed %q: %v", strings.Join(args, " "), line, err)
		}
		all = append(all, p)
	}
	return all
}

func (s *shell) bodies(want string, all []printed) {
	s.Helper()
	var got []string
	for _, p := range all {
		got = append(got, p.Body)
	}
	if strings.Join(got, " ") != want {
		s.Fatalf("got %v, want %s", got, want)
	}
}

func TestCommandLine(t *testing.T) {
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "TLS"}[secure], func(t *testing.T) {
			s := &shell{T: t, bin: bin, env: []string{"SERVICEBUS_CONNECTION_STRING=" + n.ConnectionString(secure)}}
			if secure {
				s.more = []string{"--ca-file", n.CA}
			}
			talk(s, fmt.Sprintf("cli-%t", secure))
			wrong := *s
			wrong.env = []string{"SERVICEBUS_CONNECTION_STRING=" +
				strings.Replace(n.ConnectionString(secure), "Key="+cluster.Key, "Key=wrong", 1)}
			wrong.do(5, "", "queue", "list")
			wrong.do(5, "", "send", "cli-plain", "x")
		})
	}
	operate(&shell{T: t, bin: bin, env: []string{"BUSBAR_OPS=http://" + n.Ops,
		"SERVICEBUS_CONNECTION_STRING=" + n.ConnectionString(false)}}, "http://"+n.Ops)
	s := &shell{T: t, bin: bin, env: []string{"BUSBAR_OPS=http://" + n.Ops}}
	status := s.do(0, "", "cluster", "status", "-o", "json")
	if !strings.Contains(status, `"partitions"`) {
		t.Errorf("cluster status printed %s", status)
	}
	s.do(2, "", "serve") // neither a data directory nor a key
	for _, wrong := range [][]string{{"quue"}, {"queue", "lst"}, {"topic"}, {"version", "x"}, {"send", "q", "x", "--in", "1s", "--at", "2026-01-31T08:00:00Z"},
		{"receive", "q", "--session", "s", "--next-session"}, {"entities", "apply"}} {
		s.do(2, "", wrong...)
	}
	if text := s.do(0, "", "version"); !strings.HasPrefix(text, "busbar ") {
		s.Errorf("version printed %q", text)
	}
}

// talk uses every verb on a plain queue and on one with sessions.
func talk(s *shell, name string) {
	q, grouped := name+"-q", name+"-s"
	s.do(0, "", "queue", "create", q, "--max-delivery-count", "5")
	s.do(4, "", "queue", "create", q)
	s.do(0, "", "queue", "create", grouped, "--session", "--partitioned", "--lock-duration", "30s")

	s.do(0, "one\ntwo\nthree\n", "send", q, "--property", "color=red")
	s.do(0, "", "send", q, "four", "--count", "2")
	s.bodies("one two three four four", s.messages("peek", q))
	s.bodies("two three", s.messages("peek", q, "--from", "2", "--max", "2"))
	got := s.messages("receive", q, "--max", "2")
	s.bodies("one two", got)
	if got[0].Properties["color"] != "red" || got[0].DeliveryCount != 1 || got[1].SequenceNumber != 2 {
		s.Errorf("received %+v", got)
	}
	s.bodies("three", s.messages("receive", q, "--abandon"))
	again := s.messages("receive", q, "--deadletter", "--reason", "why")
	s.bodies("three", again)
	if again[0].DeliveryCount != 2 {
		s.Errorf("after abandon the count is %d, want 2", again[0].DeliveryCount)
	}
	dead := s.messages("receive", q, "--dlq", "--complete=false")
	s.bodies("three", dead)
	if dead[0].DeadLetterReason != "why" {
		s.Errorf("the reason is %q", dead[0].DeadLetterReason)
	}
	s.bodies("three", s.messages("peek", q, "--dlq"))
	s.bodies("four four", s.messages("receive", q, "--max", "10", "--delete", "--wait", "2s"))
	if out, said := s.both(0, "", "receive", q, "--wait", "500ms"); out != "" || said != "no message in 500ms\n" {
		s.Errorf("receive of an empty queue printed %q and said %q", out, said)
	}

	for _, id := range []string{"A", "B"} {
		s.do(0, "", "send", grouped, id+"1", id+"2", "--session", id)
	}
	s.bodies("B1 B2", s.messages("receive", grouped, "--session", "B", "--max", "2"))
	next := s.messages("receive", grouped, "--next-session", "--max", "5")
	s.bodies("A1 A2", next)
	if next[0].SessionID == nil || *next[0].SessionID != "A" {
		s.Errorf("received %+v", next)
	}
	s.bodies("", s.messages("receive", grouped, "--next-session", "--wait", "500ms"))
	s.do(2, "", "receive", grouped)
	s.do(2, "", "send", grouped, "no session")

	s.do(3, "", "receive", name+"-none")
	s.do(3, "", "queue", "show", name+"-none")
	if _, said := s.both(2, "", "queue", "delete", q); !strings.Contains(said, "1 dead letter; add --yes") {
		s.Errorf("queue delete said %s", said)
	}
	s.do(0, "", "queue", "delete", q, "--yes")
	s.do(3, "", "queue", "delete", q)
	describes(s, name)
	sendsLater(s, name)
}

// words is what a command printed, with one space between words.
func (s *shell) words(code int, args ...string) string {
	s.Helper()
	return strings.Join(strings.Fields(s.do(code, "", args...)), " ")
}

// describes uses the verbs of topics, subscriptions and rules, and changes what is there.
func describes(s *shell, name string) {
	topic, queue := name+"-t", name+"-u"
	s.do(0, "", "topic", "create", topic, "--default-ttl", "14d", "--duplicate-window", "10m")
	s.do(4, "", "topic", "create", topic)
	s.do(0, "", "subscription", "create", topic, "eu", "--sql", "region = 'eu'", "--action", "SET routed = 'yes'", "--lock-duration", "30s")
	s.do(0, "", "sub", "create", topic+"/Subscriptions/all", "--session=false", "--max-delivery-count", "3")
	s.do(0, "", "rule", "create", topic, "eu", "urgent", "--field", "Subject=now", "--property", "priority:int=5")
	s.do(4, "", "rule", "create", topic, "eu", "urgent", "--true")
	s.do(3, "", "rule", "update", topic, "eu", "none", "--true")
	s.do(2, "", "rule", "create", topic, "eu", "bad", "--sql", "a = = 3")
	s.do(2, "", "rule", "create", topic, "eu", "two", "--sql", "1=1", "--true")
	if got, want := s.words(0, "rule", "list", topic, "eu"), "NAME FILTER SELECTS ACTION $Default Sql region = 'eu' SET routed = 'yes' "+
		"urgent Correlation Label=now priority=5 -"; got != want {
		s.Errorf("rule list printed %s, want %s", got, want)
	}
	s.do(0, "", "send", topic, "one", "--property", "region=eu")
	s.do(0, "", "send", topic, "two", "--property", "region=us")
	s.do(1, "", "rule", "test", topic, "eu", "--property", "region=us")
	if got := s.words(0, "rule", "test", topic, "eu", "--property", "region=eu"); got !=
		"RULE SELECTED CHANGES $Default yes SET routed = 'yes' urgent no -" {
		s.Errorf("rule test printed %s", got)
	}
	got := s.messages("receive", topic+"/Subscriptions/eu", "--max", "5", "--wait", "2s")
	s.bodies("one", got)
	s.bodies("one two", s.messages("peek", topic+"/Subscriptions/all"))

	if got, want := s.words(0, "subscription", "list", topic), "TOPIC NAME STATUS ACTIVE DEAD SESSIONS LOCK DELIVERIES FORWARD TO "+
		topic+" all Active 2 0 no 1m 3 - "+topic+" eu Active 0 0 no 30s 10 -"; got != want {
		s.Errorf("subscription list printed %s, want %s", got, want)
	}
	if got := s.words(0, "topic", "list"); !strings.Contains(got, topic+" Active 2 0 14d ") {
		s.Errorf("topic list printed %s", got)
	}
	// Any path is shown, and the kinds are told apart.
	if got := s.words(0, "queue", "show", topic+"/Subscriptions/all"); !strings.Contains(got, "all Active 2 0 no 1m 3 -") {
		s.Errorf("queue show of a subscription printed %s", got)
	}
	s.do(2, "", "topic", "show", queue+"/Subscriptions/x", "more")
	s.do(2, "", "queue", "update", topic, "--metadata", "x")
	updates(s, queue)
	s.do(0, "", "rule", "update", topic, "eu", "urgent", "--false")
	s.do(0, "", "rule", "delete", topic, "eu", "urgent")
	s.do(3, "", "rule", "delete", topic, "eu", "urgent")
	s.do(2, "", "topic", "delete", topic) // it has subscriptions
	s.do(2, "", "subscription", "delete", topic, "all")
	s.do(0, "", "subscription", "delete", topic, "all", "--yes")
	s.do(0, "", "topic", "delete", topic, "--yes")
	s.do(3, "", "subscription", "show", topic, "eu")
}

// updates changes a property of a living queue and leaves the others.
func updates(s *shell, queue string) {
	s.do(0, "", "queue", "create", queue, "--lock-duration", "45s", "--metadata", "mine", "--max-delivery-count", "4")
	s.do(0, "", "send", queue, "kept")
	if _, said := s.both(0, "", "queue", "update", queue, "--max-delivery-count", "9", "--dry-run"); !strings.Contains(said,
		`MaxDeliveryCount: "4" becomes "9"`) {
		s.Errorf("a dry run said %s", said)
	}
	s.do(0, "", "queue", "update", queue, "--max-delivery-count", "9")
	s.do(2, "", "queue", "update", queue, "--lock-duration", "1h")
	s.do(2, "", "queue", "update", queue)
	s.do(3, "", "queue", "update", queue+"-none", "--metadata", "x")
	var v struct {
		LockDuration, UserMetadata string
		MaxDeliveryCount           int
		Counts                     struct{ Active int }
	}
	if err := json.Unmarshal([]byte(s.do(0, "", "queue", "show", queue, "-o", "json")), &v); err != nil {
		s.Fatal(err)
	}
	if v.LockDuration != "PT45S" || v.UserMetadata != "mine" || v.MaxDeliveryCount != 9 || v.Counts.Active != 1 {
		s.Errorf("after the update: %+v", v)
	}
	s.do(0, "", "queue", "delete", queue, "--yes")
}

// sendsLater sends for later, cancels one by its number and receives the other in time.
func sendsLater(s *shell, name string) {
	q := name + "-later"
	s.do(0, "", "queue", "create", q)
	var v struct{ Scheduled []int64 }
	if err := json.Unmarshal([]byte(s.do(0, "", "send", q, "never", "soon", "--in", "2s", "-o", "json")), &v); err != nil {
		s.Fatal(err)
	}
	if len(v.Scheduled) != 2 || v.Scheduled[0] == v.Scheduled[1] {
		s.Fatalf("scheduled %v", v.Scheduled)
	}
	s.do(0, "", "cancel", q, strconv.FormatInt(v.Scheduled[0], 10))
	s.do(3, "", "cancel", q, strconv.FormatInt(v.Scheduled[0], 10)) // it is gone
	s.do(2, "", "cancel", q, "first")
	s.do(2, "", "cancel", q)
	s.do(2, "", "send", q, "x", "--at", "tomorrow")
	s.bodies("soon", s.messages("receive", q, "--max", "2", "--wait", "20s"))
	s.do(0, "", "send", q, "far", "--at", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if got := s.words(0, "queue", "list"); !strings.Contains(got, q+" Active 0 0 1 ") {
		s.Errorf("queue list printed %s", got)
	}
	s.do(0, "", "queue", "delete", q, "--yes")
}
