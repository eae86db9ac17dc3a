package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// book is a sink that keeps lines, and fails while it is told to.
type book struct {
	mu       sync.Mutex
	text     bytes.Buffer
	fails    error
	reopened int
}

func (b *book) Write(_ time.Time, _ string, _ bool, line []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	b.text.Write(line)
	return nil
}

func (b *book) Reopen() error { b.mu.Lock(); defer b.mu.Unlock(); b.reopened++; return b.fails }

func (b *book) Close() error { return nil }

func (b *book) fail(err error) { b.mu.Lock(); defer b.mu.Unlock(); b.fails = err }

func (b *book) events(t *testing.T) []Event {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Event
	for line := range strings.Lines(b.text.String()) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func newBook(t *testing.T) (*Log, *book) {
	t.Helper()
	b := &book{}
	l := New(Config{Node: "n1", Life: 7, Now: time.Now}, b, hclog.NewNullLogger())
	t.Cleanup(func() { closeLog(t, l, time.Minute) })
	return l, b
}

func closeLog(t *testing.T, l *Log, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestEventsAreLinesInOrder(t *testing.T) {
	l, b := newBook(t)
	for i := range 3 {
		l.Record(Event{Action: fmt.Sprint("a", i), Who: Who{Kind: byPolicy, Policy: "root"}, Via: ViaAMQP})
	}
	closeLog(t, l, time.Minute)
	all := b.events(t)
	if len(all) != 3 {
		t.Fatalf("%d events", len(all))
	}
	for i, e := range all {
		if e.Action != fmt.Sprint("a", i) || e.Outcome != OK || e.Node != "n1" || e.ID != fmt.Sprintf("%016x-%d", 7, i+1) || e.Time.IsZero() {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	l.Record(Event{Action: "late"})
	if n := l.Counts().Full.Load(); n != 1 {
		t.Errorf("%d events are dropped by a log that is closed, want 1", n)
	}
}

// A host that is refused without end has a burst of lines; others have theirs, and the log tells how many it left out.
func TestRefusalsAreBounded(t *testing.T) {
	l, b := newBook(t)
	now := time.Now()
	const tries = 10_000
	for range tries {
		l.Record(Event{Time: now, Action: "access", Outcome: "Unauthorized", Remote: "[2001:db8::1]:5"})
		l.Record(Event{Time: now, Action: "access", Outcome: "Unauthorized", Remote: "[2001:db8::2]:6"}) // of the same network
	}
	l.Record(Event{Time: now, Action: "access", Outcome: "Unauthorized", Remote: "10.0.0.1:7"})
	l.Record(Event{Time: now, Action: "entity.create"})
	closeLog(t, l, time.Minute)
	byRemote := map[string]int{}
	var omitted uint64
	for _, e := range b.events(t) {
		byRemote[e.Remote]++
		omitted += e.Counts["refusals"]
	}
	if n := byRemote["[2001:db8::1]:5"] + byRemote["[2001:db8::2]:6"]; n != hostBurst {
		t.Errorf("%d lines of one network, want %d", n, hostBurst)
	}
	if byRemote["10.0.0.1:7"] != 1 || omitted != 2*tries-hostBurst || l.Counts().Bounded.Load() != omitted {
		t.Errorf("lines by host: %v, omitted %d", byRemote, omitted)
	}
}

func TestAllHostsTogetherAreBounded(t *testing.T) {
	p := pace{hosts: map[netip.Prefix]time.Time{}}
	now, lines := time.Now(), 0
	for i := range 10 * maxHosts {
		if p.may(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), now) {
			lines++
		}
	}
	if lines != allBurst || len(p.hosts) > maxHosts {
		t.Errorf("%d lines of %d hosts", lines, len(p.hosts))
	}
	if !p.may("10.0.0.1:1", now.Add(allPause)) || p.may("10.0.0.2:1", now.Add(allPause)) {
		t.Error("a second later there is room for one line")
	}
}

// A sink that fails blocks nobody: events wait, those beyond the queue are dropped, and all is told when the sink is back.
func TestASinkThatFailsStopsNobody(t *testing.T) {
	l, b := newBook(t)
	b.fail(errors.New("no space left on device"))
	for range 2*queueLines + 10 {
		l.Record(Event{Action: "entity.create"})
	}
	wait(t, func() bool { // before the first try has failed, the alarm is that too many wait
		err := l.Check()
		return err != nil && strings.Contains(err.Error(), "no space left")
	})
	if l.Counts().Full.Load() == 0 || l.Counts().WriteFailures.Load() == 0 {
		t.Errorf("check %v, %d dropped", l.Check(), l.Counts().Full.Load())
	}
	b.fail(nil)
	wait(t, func() bool { return l.Check() == nil && l.Counts().OK.Load() >= queueLines })
	closeLog(t, l, time.Minute)
	var dropped uint64
	for _, e := range b.events(t) {
		dropped += e.Counts["queueFull"]
	}
	if written := l.Counts().OK.Load(); dropped == 0 || dropped+written != 2*queueLines+11 {
		t.Errorf("%d written, %d dropped", written, dropped)
	}
}

func wait(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-t.Context().Done():
			t.Fatal("it does not come")
		case <-time.After(time.Millisecond):
		}
	}
}

// A log that closes while its sink fails does not keep the node from its end.
func TestClosingIsBounded(t *testing.T) {
	l, b := newBook(t)
	b.fail(errors.New("broken"))
	l.Record(Event{Action: "a"})
	began := time.Now()
	closeLog(t, l, 50*time.Millisecond)
	if took := time.Since(began); took > 30*time.Second { // by the clock: a log without the bound tries for ever
		t.Errorf("it took %v", took)
	}
	if l.Counts().Full.Load() != 1 {
		t.Errorf("%d events are told as dropped", l.Counts().Full.Load())
	}
}

func TestAReopenThatFailsIsAnAlarm(t *testing.T) {
	l, b := newBook(t)
	b.fail(errors.New("no directory"))
	l.Reopen()
	wait(t, func() bool { return l.Check() != nil })
	b.fail(nil)
	l.Record(Event{Action: "a"})
	wait(t, func() bool { return l.Check() == nil })
	closeLog(t, l, time.Minute)
	if b.reopened < 2 {
		t.Errorf("it was opened again %d times", b.reopened)
	}
}

func TestNoLogCostsNothing(t *testing.T) {
	var l *Log
	next := http.NewServeMux()
	if l.Requests(ViaOperations, next) != http.Handler(next) {
		t.Error("a handler is wrapped")
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		l.Record(Event{Action: "a"})
		l.Reopen()
		e := Of(ctx)
		e.Do("a", "b")
		e.By(auth.Claim{})
		e.Count("messages", 1)
		e.Changed(nil, nil)
		e.Refused("c", "d")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRequests(t *testing.T) {
	l, b := newBook(t)
	handler := l.Requests(ViaOperations, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/named":
			Of(r.Context()).Do("messages.read", "q")
			Of(r.Context()).Count("messages", 3)
		case "/ignored":
			Of(r.Context()).Ignore()
		case "/denied":
			Of(r.Context()).ByNobody("root", "InvalidSignature")
			w.WriteHeader(http.StatusUnauthorized)
		case "/breaks":
			panic(http.ErrAbortHandler)
		}
	}))
	for _, target := range []string{"GET /", "GET /named?max=3&sig=secret", "POST /", "POST /ignored", "GET /denied", "POST /denied", "POST /breaks"} {
		method, path, _ := strings.Cut(target, " ")
		func() {
			defer func() { _ = recover() }()
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
		}()
	}
	closeLog(t, l, time.Minute)
	var got []string
	for _, e := range b.events(t) {
		got = append(got, fmt.Sprint(e.Method, " ", e.Path, " ", e.Action, " ", e.Outcome, " ", e.Who.Policy, " ", e.Parameters, e.Counts))
	}
	want := []string{"GET /named messages.read ok  map[max:3] map[messages:3]", "POST / request ok  map[] map[]",
		"GET /denied access Unauthorized root map[] map[]", "POST /denied request Unauthorized root map[] map[]",
		"POST /breaks request Aborted  map[] map[]"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if strings.Contains(b.text.String(), "secret") {
		t.Error("a parameter that may hold a secret is in the log")
	}
}

// Each property of an entity that changes is in the log, and no key.
func TestEachPropertyThatChangesIsTold(t *testing.T) {
	of := reflect.TypeFor[fsm.Descriptor]()
	for i := range of.NumField() {
		field := of.Field(i)
		if ownFields[field.Name] {
			continue
		}
		before, after := &fsm.Descriptor{}, &fsm.Descriptor{}
		change(t, reflect.ValueOf(after).Elem().FieldByName(field.Name))
		was, is := differences(before, after)
		if len(was) != 1 || len(is) != 1 {
			t.Errorf("%s changes: before %v, after %v", field.Name, was, is)
		}
	}
	key := func(text string) *fsm.Descriptor {
		return &fsm.Descriptor{Name: "q", AuthRules: []fsm.AuthRule{{Name: "app", PrimaryKey: text, SecondaryKey: "s3cret", Send: true}}}
	}
	for _, c := range []struct {
		before, after *fsm.Descriptor
		want          string
	}{
		{key("s3cret1"), key("s3cret2"), `"keys":"primary changed"`}, {nil, key("s3cret1"), `"keys":"new"`}, {key("s3cret1"), nil, `"name":"app"`},
	} {
		e := &Entry{}
		e.Changed(c.before, c.after)
		line, err := e.event.encode()
		if err != nil || !strings.Contains(string(line), c.want) || strings.Contains(string(line), "s3cret") {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		change(t, v.Field(0))
	default:
		if v.CanInt() {
			v.SetInt(1)
			return
		}
		v.SetUint(1)
	}
}

func TestALineIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	e := Event{Path: long, Entity: long, Agent: long, Parameters: map[string]string{"to": long}, After: map[string]any{"a": long}}
	line, err := e.encode()
	if err != nil || len(line) > maxLineBytes || !strings.Contains(string(line), `"cut":true`) {
		t.Errorf("%v: %d bytes", err, len(line))
	}
}

// stuck is a sink that takes nothing until it is let go.
type stuck struct {
	book
	let chan struct{}
}

func (s *stuck) Write(at time.Time, action string, refused bool, line []byte) error {
	<-s.let
	return s.book.Write(at, action, refused, line)
}

// A sink that blocks without an error, as a pipe that nobody reads, keeps nobody: neither a request nor the node's end.
func TestASinkThatBlocksStopsNobody(t *testing.T) {
	var told bytes.Buffer
	s := &stuck{let: make(chan struct{})}
	l := New(Config{Now: time.Now}, s, hclog.New(&hclog.LoggerOptions{Output: &told}))
	for range 3 * queueLines {
		l.Record(Event{Action: "entity.create"})
	}
	if n := l.Counts().Full.Load(); n < queueLines {
		t.Errorf("%d are dropped", n)
	}
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), "too slowly") {
		t.Errorf("the alarm: %v", err)
	}
	if n := strings.Count(told.String(), "events of the audit log are dropped"); n != 1 {
		t.Errorf("the node's log tells of it %d times: %s", n, told.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); !errors.Is(err, errBlocked) {
		t.Errorf("close: %v", err)
	}
	close(s.let)
	wait(t, func() bool { return l.Check() == nil })
}

// Only refusals that anybody could cause are bounded: what a key with a right could not do has its line.
func TestAKeyWithARightIsNotBounded(t *testing.T) {
	l, b := newBook(t)
	for range 3 * hostBurst {
		l.Record(Event{Action: "messages.purge", Outcome: Aborted, Who: Who{Kind: byPolicy, Policy: "root"}, Remote: "10.0.0.1:1"})
		l.Record(Event{Action: "messages.purge", Outcome: "Unauthorized", Who: Who{Kind: byPolicy, Policy: "send"}, Remote: "10.0.0.2:1"})
	}
	closeLog(t, l, time.Minute)
	lines := map[string]int{}
	for _, e := range b.events(t) {
		lines[e.Who.Policy]++
	}
	if lines["root"] != 3*hostBurst || lines["send"] != hostBurst {
		t.Errorf("%v", lines)
	}
}

// A line that a sink takes at no time is dropped, and those after it are written.
func TestALineThatIsTooLongForItsSink(t *testing.T) {
	l, b := newBook(t)
	b.fail(&net.OpError{Op: "write", Err: os.NewSyscallError("sendto", syscall.EMSGSIZE)})
	l.Record(Event{Action: "long"})
	wait(t, func() bool { return l.Counts().Full.Load() == 1 })
	b.fail(nil)
	l.Record(Event{Action: "short"})
	closeLog(t, l, time.Minute)
	var actions []string
	for _, e := range b.events(t) {
		actions = append(actions, e.Action)
	}
	if !reflect.DeepEqual(actions, []string{"short", "audit.omitted"}) {
		t.Errorf("%q", actions)
	}
}

// No text that a client wrote ends a line, moves the cursor of a terminal, or turns the direction of a text.
func TestTextsOfClientsStayInTheirPlace(t *testing.T) {
	const text = "a\r\n{\"id\":\"x\"}\x00\x1b[2J\x7f\u009b2J\u202e\u2028\ufeff\U000e0041 ä😀"
	e := Event{Action: text, Who: Who{Kind: byToken, Subject: text, Issuer: text}, Agent: text + "\xff", Path: text, Entity: text, Reason: text,
		Parameters: map[string]string{"to": text}, After: map[string]any{"UserMetadata": text, "rule": "\xff\xfe"}}
	line, err := e.encode()
	if err != nil {
		t.Fatal(err)
	}
	body, ended := strings.CutSuffix(string(line), "\n")
	if at := strings.IndexFunc(body, hidden); !ended || at >= 0 {
		t.Errorf("rune %d of %q", at, body)
	}
	var got Event
	if err := json.Unmarshal(line, &got); err != nil || got.Path != text || got.Agent != text || got.Who.Subject != text || got.After["UserMetadata"] != text ||
		got.Parameters["to"] != text || !strings.Contains(body, "ä😀") {
		t.Errorf("%v: %+v", err, got)
	}
}
