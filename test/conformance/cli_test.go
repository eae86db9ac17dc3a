package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// shell runs the command line of the broker's own binary as a client.
type shell struct {
	*testing.T
	bin  string
	env  []string
	more []string // flags of every call
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
	ctx, cancel := context.WithTimeout(s.Context(), soon)
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
	s.do(2, "", "queue", "list") // no connection string
	s.do(2, "", "serve")         // neither a data directory nor a key
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
	s.bodies("", s.messages("receive", q, "--wait", "500ms"))

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
	s.do(0, "", "queue", "delete", q)
	s.do(3, "", "queue", "delete", q)
}
