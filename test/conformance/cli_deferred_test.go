package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

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
