package fsm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt with what the state does, and testdata/codec/*.hex")

// TestScripts runs testdata/*.txt: a step is a line "command key=value …", a line "----" and what is
// expected up to an empty line. Tokens are called T1, T2, … in the order they were issued; a session
// named in a step is proven by the last token that this script got for it, or by token=. Times are
// milliseconds since the beginning of the script, by both clocks unless wall= or lease= is given.
//
// After every step the invariants are counted out, and a second replica that applied the same
// entries must have the same digest.
func TestScripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) < 20 {
		t.Fatalf("only %d scripts", len(files))
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			in, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out := newScript(t).run(string(in))
			if *update {
				if err := os.WriteFile(f, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type script struct {
	*driver
	twin    *State
	ids     map[string]EntityID
	version uint64
	tokens  []LockToken
	proofs  map[string]LockToken
	bodies  map[BodyRef]string
	args    map[string]string
	flags   map[string]bool
	line    string // the step being done
}

func newScript(t *testing.T) *script {
	s := &script{
		driver: &driver{tb: t, s: New(1), wall: startWall}, twin: New(1),
		ids: map[string]EntityID{}, proofs: map[string]LockToken{},
		bodies: map[BodyRef]string{},
	}
	s.step("lead")
	return s
}

// run does the steps of a script and returns it with what really came of them.
func (s *script) run(in string) string {
	var out, want []string
	lines := strings.Split(strings.TrimRight(in, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		if lines[i] != "----" || i == 0 {
			continue
		}
		for want = nil; i+1 < len(lines) && lines[i+1] != ""; i++ {
			want = append(want, lines[i+1])
		}
		s.line = out[len(out)-2]
		got := s.step(s.line)
		if w := strings.Join(want, "\n"); got != w && !*update {
			s.tb.Errorf("%s\ngot:\n%s\nwant:\n%s", s.line, got, w)
		}
		if got != "" {
			out = append(out, got)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// step does one line and says what came of it.
func (s *script) step(line string) string {
	words := strings.Fields(line)
	s.args, s.flags = map[string]string{}, map[string]bool{}
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			s.args[k] = v
		} else {
			s.flags[w] = true
		}
	}
	if v, ok := s.args["now"]; ok {
		s.args["wall"], s.args["lease"] = v, v
	}
	if v, ok := s.args["wall"]; ok {
		s.wall = startWall + Wall(s.number(v))
	}
	if v, ok := s.args["lease"]; ok {
		s.lease = Lease(s.number(v))
	}
	if q := s.query(words[0]); q != nil {
		return s.showAnswer(s.s.Query(QueryRequest{Entity: s.entity(), Sub: s.sub(), Query: q}))
	}
	if words[0] == "restart" {
		r, err := os.CreateTemp(s.tb.TempDir(), "")
		if err == nil {
			_, err = s.s.Capture().WriteTo(r)
		}
		if err == nil {
			_, err = r.Seek(0, 0)
		}
		if err == nil {
			err = s.s.Restore(r)
		}
		if err != nil {
			s.tb.Fatal(err)
		}
		return s.check("")
	}
	if words[0] == "counter" {
		for _, st := range []*State{s.s, s.twin} {
			st.StartAfter(s.entity(), s.arg("value", 0))
		}
		return s.check("")
	}
	req := Request{Sub: s.sub(), Command: s.command(words[0])}
	if _, put := req.Command.(*PutEntity); !put {
		req.Entity = s.entity()
	}
	if v, ok := s.args["id"]; ok {
		p := strings.Split(v, "/")
		req.ID = RequestID{Incarnation(s.number(p[0])), s.number(p[1]), s.number(p[2])}
	}
	return s.check(s.propose(words[0], req))
}

func (s *script) propose(word string, req Request) string {
	if word == "lead" {
		s.epoch = 0
	}
	e := s.entry(req)
	if v, ok := s.args["epoch"]; ok {
		e.Epoch = s.number(v)
	}
	s.index++
	r := s.s.Apply(s.index, e)
	s.twin.Apply(s.index, e)
	if word == "lead" {
		s.epoch = s.index
	}
	if c, ok := req.Command.(*Enqueue); ok {
		for i := range c.Messages {
			s.bodies[BodyRef{s.index, c.Messages[i].BodyOffset, uint32(len(c.Messages[i].Body))}] =
				string(c.Messages[i].Body)
		}
	}
	return s.showResult(&r)
}

func (s *script) check(out string) string {
	if err := s.s.CheckInvariants(); err != nil {
		s.tb.Fatalf("%s: %v", s.line, err)
	}
	if s.s.Digest() != s.twin.Digest() {
		s.tb.Fatalf("%s: the replicas disagree", s.line)
	}
	return strings.TrimSpace(out)
}

func (s *script) number(v string) uint64 {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		s.tb.Fatalf("%s: %v", s.line, err)
	}
	return n
}

func (s *script) arg(key string, absent uint64) uint64 {
	if v, ok := s.args[key]; ok {
		return s.number(v)
	}
	return absent
}

func (s *script) list(key string) []string {
	if s.args[key] == "" {
		return nil
	}
	return strings.Split(s.args[key], ",")
}

// entity is the one named by q=, "q" if none is; a first mention gives it the next id.
func (s *script) entity() EntityID {
	name := s.args["q"]
	if name == "" {
		name = "q"
	}
	if _, ok := s.ids[name]; !ok {
		s.ids[name] = EntityID(len(s.ids) + 1)
	}
	return s.ids[name]
}

func (s *script) sub() SubQueue {
	if s.flags["dlq"] {
		return DeadLetter
	}
	return Main
}

func (s *script) token(name string) LockToken {
	var n int
	if _, err := fmt.Sscanf(name, "T%d", &n); err != nil || n < 1 || n > len(s.tokens) {
		return LockToken{1, 2, 3}
	}
	return s.tokens[n-1]
}

func (s *script) tokenName(t LockToken) string {
	for i := range s.tokens {
		if s.tokens[i] == t {
			return fmt.Sprintf("T%d", i+1)
		}
	}
	s.tokens = append(s.tokens, t)
	return fmt.Sprintf("T%d", len(s.tokens))
}

func (s *script) numbers() (ns []SequenceNumber) {
	for _, v := range s.list("numbers") {
		ns = append(ns, SequenceNumber(s.number(v)))
	}
	return ns
}

func (s *script) proof() SessionProof {
	id, ok := s.args["session"]
	if !ok {
		return SessionProof{}
	}
	p := SessionProof{ID: id, Token: s.proofs[s.args["q"]+"/"+id]}
	if v, ok := s.args["proof"]; ok {
		p.Token = s.token(v)
	}
	if p.Token.IsZero() {
		p.Token = LockToken{9}
	}
	return p
}
