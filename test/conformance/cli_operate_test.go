package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// operate uses the verbs that need the operations port.
func operate(s *shell, ops string) {
	drops(s, ops)
	refusals(s)
	looks(s)
	late(s)
	releases(s)
}

// shown is what queue show prints as JSON.
type shown struct {
	Counts  struct{ Active, DeadLetter int }
	Options struct{ NoDeadLetter bool }
	Dropped map[string]int
}

func (s *shell) show(queue string) (v shown) {
	s.Helper()
	text := s.do(0, "", "queue", "show", queue, "-o", "json")
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.Fatalf("queue show printed %q: %v", text, err)
	}
	return v
}

// drops: S-169. A queue without dead-letter queue counts what it drops, and every door shows it.
func drops(s *shell, ops string) {
	const q = "cli-drops"
	s.do(0, "", "queue", "create", q, "--no-dead-letter", "--max-delivery-count", "1")
	if v := s.show(q); !v.Options.NoDeadLetter || len(v.Dropped) != 0 {
		s.Errorf("a new queue: %+v", v)
	}
	s.do(0, "", "send", q, "one", "two", "three")
	s.bodies("one", s.messages("receive", q, "--abandon"))
	s.do(0, "", "queue", "purge", q, "--yes")
	if v, want := s.show(q), map[string]int{"max-delivery-count": 1, "purged": 2}; !reflect.DeepEqual(v.Dropped, want) {
		s.Errorf("dropped %v, want %v", v.Dropped, want)
	}
	table := strings.Join(strings.Fields(s.do(0, "", "queue", "show", q)), " ")
	if !strings.HasSuffix(table, " no DROPPED MESSAGES max-delivery-count 1 purged 2") {
		s.Errorf("queue show printed %s", table)
	}
	answer, err := http.Get(ops + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	for _, want := range []string{`reason="max-delivery-count"} 1`, `reason="purged"} 2`} {
		series := `(?m)^busbar_messages_dropped_total\{entity="cli-drops",partition="\d+",` + want + `$`
		if !regexp.MustCompile(series).Match(text) {
			s.Errorf("the metrics have no %s", want)
		}
	}

	// The option is shown and set, is in the export, and a file sets it.
	options := func(flags ...string) bool {
		s.Helper()
		var v struct{ NoDeadLetter bool }
		text := s.do(0, "", append([]string{"queue", "options", q, "-o", "json"}, flags...)...)
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			s.Fatalf("queue options printed %q: %v", text, err)
		}
		return v.NoDeadLetter
	}
	if !options() || options("--no-dead-letter=false") || s.show(q).Options.NoDeadLetter || !options("--no-dead-letter") {
		s.Error("queue options does not show or set whether there is a dead-letter queue")
	}
	exported := s.do(0, "", "entities", "export")
	if _, after, ok := strings.Cut(exported, q); !ok || !strings.Contains(after, "NoDeadLetter: true") {
		s.Errorf("entities export printed %s", exported)
	}
	s.do(0, "", "queue", "delete", q, "--yes")
}

// refusals: S-151. What the broker refuses is an error with an exit code, and what was not settled is back.
func refusals(s *shell) {
	const q = "cli-refusals"
	s.do(0, "", "queue", "create", q, "--no-dead-letter", "--lock-duration", "5s", "--max-message-kb", "64")
	s.do(0, "", "send", q, "one", "two", "three")
	printed, said := s.both(2, "", "receive", q, "--deadletter", "--max", "3", "-o", "json")
	if strings.Count(printed, "\n") != 1 || !strings.Contains(printed, `"one"`) {
		s.Errorf("receive --deadletter printed %s, want the one message that was refused", printed)
	}
	if !strings.Contains(said, "dead-letter message 1: ") || !strings.Contains(said, "amqp:not-allowed") ||
		!strings.Contains(said, "comes back when its lock ends") {
		s.Errorf("receive --deadletter said %s", said)
	}
	s.bodies("one two three", s.messages("peek", q))
	s.bodies("two three", s.messages("receive", q, "--max", "2")) // these were given back at once

	_, said = s.both(2, "short\n"+strings.Repeat("x", 70<<10)+"\nnever\n", "send", q)
	if !strings.Contains(said, "(1 message was stored)") {
		s.Errorf("send said %s", said)
	}
	s.do(0, "", "queue", "delete", q, "--yes")
}

// looks: messages that are only looked at, or abandoned, come once each and go back in order.
func looks(s *shell) {
	const q, grouped = "cli-looks", "cli-looks-sessions"
	s.do(0, "", "queue", "create", q)
	s.do(0, "", "queue", "create", grouped, "--session")
	s.do(0, "", "send", q, "1", "2", "3", "4", "5")
	s.do(0, "", "send", grouped, "1", "2", "3", "4", "5", "--session", "A")
	for _, from := range [][]string{{q}, {grouped, "--session", "A"}} {
		receive := func(flags ...string) []printed {
			s.Helper()
			return s.messages(append(append([]string{"receive"}, from...), flags...)...)
		}
		s.bodies("1 2 3", receive("--max", "3", "--complete=false"))
		s.bodies("1 2 3 4 5", receive("--max", "100", "--complete=false"))
		s.bodies("1 2 3", receive("--max", "3", "--abandon"))
		all := receive("--max", "100")
		s.bodies("1 2 3 4 5", all)
		for i, m := range all {
			if want := map[bool]int{true: 2, false: 1}[i < 3]; m.DeliveryCount != want || m.SequenceNumber != int64(i+1) {
				s.Errorf("%s: message %d has number %d and count %d, want %d", from[0], i+1, m.SequenceNumber, m.DeliveryCount, want)
			}
		}
	}
	s.do(0, "", "queue", "delete", q, "--yes")
	s.do(0, "", "queue", "delete", grouped, "--yes")
}

// late: S-151, S-159. Whoever reads the output too late has lost the lock and is told so.
func late(s *shell) {
	const q = "cli-late"
	s.do(0, "", "queue", "create", q, "--lock-duration", "5s")
	body := strings.Repeat("x", 256<<10) // more than fits into a pipe
	s.do(0, body+"\n", "send", q)
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, "receive", q, "-o", "json")
	cmd.Env = append(os.Environ(), s.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(out, first); err != nil { // the message is there and locked
		s.Fatal(err)
	}
	for s.do(0, "", "queue", "locks", q, "--json") != "" && ctx.Err() == nil {
		time.Sleep(200 * time.Millisecond)
	}
	rest, err := io.ReadAll(out)
	if err != nil || len(rest) < len(body) {
		s.Errorf("%d bytes, %v", len(rest), err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 4 ||
		!strings.Contains(said.String(), "complete message 1: ") || !strings.Contains(said.String(), "message-lock-lost") {
		s.Errorf("receive ended with %v and said %s", err, &said)
	}
	again := s.messages("receive", q)
	if len(again) != 1 || again[0].DeliveryCount != 2 {
		s.Errorf("the message came back as %d with count %d", len(again), again[0].DeliveryCount)
	}
	s.do(0, "", "queue", "delete", q, "--yes")
}

// releases: S-54. An operator takes locks and sessions from their holders.
func releases(s *shell) {
	const q, grouped = "cli-releases", "cli-releases-sessions"
	s.do(0, "", "queue", "create", q, "--lock-duration", "5m")
	s.do(0, "", "queue", "create", grouped, "--session", "--lock-duration", "5m")
	s.do(2, "", "queue", "locks", "release", q)
	s.do(2, "", "queue", "locks", "release", q, "--number", "1", "--all-of", "1/1")
	s.do(2, "", "queue", "locks", "release", q, "--all-of", "nobody")
	s.do(3, "", "queue", "locks", "release", q, "--number", "1")
	s.do(3, "", "queue", "locks", "release", q, "--all-of", "abc/7")
	s.do(3, "", "queue", "locks", "release", q+"-none", "--number", "1")
	s.do(2, "", "queue", "sessions", "release", q, "A")
	s.do(2, "", "queue", "sessions", "release", grouped)
	s.do(3, "", "queue", "sessions", "release", grouped, "A")
	s.do(2, "", "queue", "locks", "release", grouped, "--number", "1")

	body := strings.Repeat("x", 256<<10) // keeps its receiver from going on
	for _, how := range []string{"--number", "--all-of"} {
		s.do(0, body+"\n", "send", q)
		end := s.stuck("receive", q, "--json")
		var lock struct {
			SequenceNumber json.Number
			TakenBy        string
		}
		if err := json.Unmarshal([]byte(s.do(0, "", "queue", "locks", q, "--json")), &lock); err != nil {
			s.Fatal(err)
		}
		which := map[string]string{"--number": lock.SequenceNumber.String(), "--all-of": lock.TakenBy}[how]
		s.do(0, "", "queue", "locks", "release", q, how, which)
		if code, said := end(); code != 4 || !strings.Contains(said, "message-lock-lost") {
			s.Errorf("%s: the holder ended with %d and said %s", how, code, said)
		}
		if all := s.messages("receive", q); len(all) != 1 || all[0].DeliveryCount != 2 {
			s.Errorf("%s: %d messages came back", how, len(all))
		}
	}
	s.do(0, body+"\n", "send", grouped, "--session", "A")
	end := s.stuck("receive", grouped, "--session", "A", "--json")
	s.do(0, "", "queue", "sessions", "release", grouped, "A")
	if code, said := end(); code != 4 || !strings.Contains(said, "session-lock-lost") {
		s.Errorf("the holder of the session ended with %d and said %s", code, said)
	}
	if all := s.messages("receive", grouped, "--session", "A"); len(all) != 1 || all[0].DeliveryCount != 2 {
		s.Errorf("%d messages of the session came back", len(all))
	}
	for queue, want := range map[string]int{q: 2, grouped: 1} {
		history := s.do(0, "", "queue", "history", queue, "--kind", "releases")
		if n := strings.Count(history, "RootManageSharedAccessKey"); n != want || !strings.Contains(history, "OPERATOR") {
			s.Errorf("the releases of %s are %s", queue, history)
		}
	}
	s.do(0, "", "queue", "delete", q, "--yes")
	s.do(0, "", "queue", "delete", grouped, "--yes")
}

// stuck starts a command whose output nobody reads, once its first byte is there. The result reads the rest
// and tells how it ended.
func (s *shell) stuck(args ...string) (end func() (code int, said string)) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), s.bin, args...)
	cmd.Env = append(os.Environ(), s.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, 1))
	}
	if err != nil {
		s.Fatal(err)
	}
	return func() (int, string) {
		_, _ = io.Copy(io.Discard, out) // how it ends counts
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode(), said.String()
	}
}

// S-75, S-64: what the command line puts aside it finds again by number and by looking for it, of one session as
// well; states of sessions are read and written byte by byte; a token opens what its key opens.
func TestCommandLineOfDeferredMessagesAndStates(t *testing.T) {
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{T: t, bin: bin, env: []string{"SERVICEBUS_CONNECTION_STRING=" + n.ConnectionString(false), "BUSBAR_OPS=http://" + n.Ops}}
	s.do(0, "", "queue", "create", "later")
	s.do(0, "", "queue", "create", "grouped", "--session")
	s.deferred()
	s.deferredInSession()
	s.states()
	s.tokens(n)
	s.do(0, "", "send", "later", "x")
	if _, said := s.both(2, "", "reset"); !strings.Contains(said, "add --yes") {
		s.Errorf("reset without --yes said %q", said)
	}
	if out := s.do(0, "", "reset", "--yes"); out != "emptied 2 entities\n" {
		s.Errorf("reset printed %q", out)
	}
	s.bodies("", s.messages("peek", "later"))
}

func (s *shell) deferred() {
	s.do(0, "one\ntwo\nthree\nfour\n", "send", "later")
	aside := s.messages("receive", "later", "--max", "3", "--defer")
	s.bodies("one two three", aside)
	s.bodies("four", s.messages("receive", "later", "--max", "4", "--wait", "2s"))

	kept := s.messages("receive", "later", "--number", fmt.Sprint(aside[1].SequenceNumber), "--abandon")
	s.bodies("two", kept)
	s.bodies("one two three", s.messages("receive", "later", "--deferred", "--max", "9", "--complete=false"))
	s.bodies("two", s.messages("receive", "later", "--number", fmt.Sprint(aside[1].SequenceNumber)))
	s.do(3, "", "receive", "later", "--number", fmt.Sprint(aside[1].SequenceNumber)) // it is completed
	s.bodies("one", s.messages("receive", "later", "--deferred", "--deadletter", "--reason", "why", "--description", "since"))
	dead := s.messages("peek", "later", "--dlq")
	s.bodies("one", dead)
	if dead[0].DeadLetterReason != "why" {
		s.Errorf("the reason is %q", dead[0].DeadLetterReason)
	}
	s.bodies("three", s.messages("receive", "later", "--deferred", "--delete"))
	if out, said := s.both(0, "", "receive", "later", "--deferred"); out != "" || said != "later has no deferred message\n" {
		s.Errorf("printed %q and said %q", out, said)
	}
	s.do(2, "", "receive", "later", "--deferred", "--number", "1")
	s.do(2, "", "receive", "later", "--number", "0")
	s.do(2, "", "receive", "later", "--defer", "--abandon")
}

func (s *shell) deferredInSession() {
	s.do(0, "a\nb\n", "send", "grouped", "--session", "s1")
	s.do(0, "", "send", "grouped", "c", "--session", "s2")
	s.bodies("a", s.messages("receive", "grouped", "--session", "s1", "--defer"))
	s.bodies("c", s.messages("receive", "grouped", "--session", "s2", "--defer"))
	s.bodies("a", s.messages("receive", "grouped", "--session", "s1", "--deferred", "--max", "5"))
	s.bodies("b", s.messages("receive", "grouped", "--session", "s1"))
	s.do(2, "", "receive", "grouped", "--next-session", "--deferred")
}

func (s *shell) states() {
	if out := s.do(0, "", "session", "state", "get", "grouped", "s1"); out != "" {
		s.Errorf("a session without a state has %q", out)
	}
	s.do(0, "", "session", "state", "set", "grouped", "s1", "step 3")
	if out := s.do(0, "", "session", "state", "get", "grouped", "s1"); out != "step 3" {
		s.Errorf("the state is %q", out)
	}
	bytes := []byte{0, 0xff, 0xfe, '\n'}
	file := filepath.Join(s.TempDir(), "state")
	if err := os.WriteFile(file, bytes, 0o600); err != nil {
		s.Fatal(err)
	}
	s.do(0, "", "session", "state", "set", "grouped", "s1", "--file", file)
	if out := s.do(0, "", "session", "state", "get", "grouped", "s1"); out != string(bytes) {
		s.Errorf("the state is %q, want %q", out, bytes)
	}
	var v struct {
		State         *string
		StateEncoding string
	}
	get := func() {
		s.Helper()
		v.State, v.StateEncoding = nil, ""
		if err := json.Unmarshal([]byte(s.do(0, "", "session", "state", "get", "grouped", "s1", "-o", "json")), &v); err != nil {
			s.Fatal(err)
		}
	}
	if get(); v.State == nil || *v.State != "AP/+Cg==" || v.StateEncoding != "base64" {
		s.Errorf("as JSON: %+v", v)
	}
	s.do(0, "from a pipe", "session", "state", "set", "grouped", "s1", "--file", "-")
	if get(); v.State == nil || *v.State != "from a pipe" || v.StateEncoding != "" {
		s.Errorf("as JSON: %+v", v)
	}
	s.do(0, "", "session", "state", "clear", "grouped", "s1")
	if get(); v.State != nil {
		s.Errorf("a state that was removed is %q", *v.State)
	}
	s.do(2, "", "session", "state", "set", "grouped", "s1")
	s.do(2, "", "session", "state", "set", "grouped", "s1", "x", "--file", file)
	s.do(2, "", "session", "state", "get", "later", "s1") // a queue without sessions
}

// tokens asks the operations port with what the command prints.
func (s *shell) tokens(n *cluster.Node) {
	amqp, _ := n.Doors()
	status := func(token string) int {
		s.Helper()
		req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+amqp+"/later?api-version=2021-05", nil)
		if err != nil {
			s.Fatal(err)
		}
		req.Header.Set("Authorization", token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			s.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	for _, args := range [][]string{{"token"}, {"token", "later", "--valid", "1m"}} {
		if got := status(strings.TrimSpace(s.do(0, "", args...))); got != 200 {
			s.Errorf("%v opens the queue with %d", args, got)
		}
	}
	if got := status(strings.TrimSpace(s.do(0, "", "token", "grouped"))); got != 401 {
		s.Errorf("a token for another queue: %d, want 401", got)
	}
	s.do(2, "", "token", "a", "b")
	s.do(2, "", "token", "--valid", "1ms")
}
