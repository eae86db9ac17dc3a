package rest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// shelf is the partitions behind an operator: real states, without a log.
type shelf struct {
	t      *testing.T
	world  *world
	states []*fsm.State
	bodies map[uint64][]byte
	index  uint64
	fail   func(any) error // a failure to inject
	stale  fsm.Millis      // age of what the replicas here have
	absent bool            // there is no replica here
}

// inspector is an operator's API on a shelf with two partitions.
type inspector struct {
	*shelf
	api *Operator
}

func newInspector(t *testing.T) *inspector {
	t.Helper()
	s := &shelf{t: t, world: &world{entities: map[string]*fsm.Descriptor{}}, bodies: map[uint64][]byte{}}
	for i := range 2 {
		s.states = append(s.states, fsm.New(fsm.PartitionID(i+1)))
		s.index++
		s.states[i].Apply(s.index, &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{Node: "n"}}}})
	}
	policies, err := auth.New(auth.DefaultExpiryTolerance)
	if err != nil {
		t.Fatal(err)
	}
	if err := policies.Replace("", auth.Policy{Name: root, Primary: rootKey, Rights: auth.All},
		auth.Policy{Name: "listener", Primary: "k", Rights: auth.Listen}); err != nil {
		t.Fatal(err)
	}
	api, err := NewOperator(OperatorDeps{Entities: s, Shares: s, Replicas: s, Policies: policies, Now: func() time.Time { return now },
		RequestTimeout: time.Minute, Log: hclog.NewNullLogger(),
		Refusals:     refusal.New(7, hclog.NewNullLogger(), func() time.Time { return now }),
		Suspend:      s.Suspend,
		Look:         func(d *fsm.Delivery) (rule.Message, error) { return bodyMessage{d}, nil },
		Transactions: func(entity string, ended bool) any { return []string{entity, fmt.Sprint(ended)} },
		Holder: func(by fsm.RequestID) (client, link, remote string) {
			if by.Pump == 0 {
				return "", "", ""
			}
			return "c", fmt.Sprint("link ", by.Pump), "127.0.0.1:9"
		},
		Show: func(d *fsm.Delivery) (any, error) {
			return map[string]any{"number": d.Seq, "state": d.State, "body": string(d.Body)}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return &inspector{s, api}
}

func (s *shelf) Get(ctx context.Context, name string) (*fsm.Descriptor, error) {
	return s.world.Get(ctx, name)
}

func (s *shelf) Some(ctx context.Context, names []string) ([]*fsm.Descriptor, error) {
	return s.world.Some(ctx, names)
}

func (s *shelf) List(ctx context.Context, kind fsm.EntityKind, skip, top int) ([]*fsm.Descriptor, error) {
	return s.world.List(ctx, kind, skip, top)
}

func (s *shelf) Delete(ctx context.Context, name string) error { return s.world.Delete(ctx, name) }

func (s *shelf) Create(ctx context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	partitions := d.Partitions
	made, err := s.world.Create(ctx, d)
	if err != nil {
		return nil, err
	}
	if made.Partitioned {
		made.Partitions = partitions
	}
	return made, s.put(made)
}

func (s *shelf) Update(ctx context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	made, err := s.world.Update(ctx, d)
	if err != nil {
		return nil, err
	}
	return made, s.put(made)
}

func (s *shelf) put(d *fsm.Descriptor) error {
	for _, p := range d.Partitions {
		s.apply(int(p)-1, fsm.Request{Entity: d.ID, Command: &fsm.PutEntity{Descriptor: *d}})
	}
	return nil
}

func (s *shelf) apply(i int, r fsm.Request) fsm.Outcome {
	wall := fsm.Wall(now.UnixMilli()) - 1
	e := &fsm.Entry{Wall: wall, Lease: fsm.Lease(wall), Epoch: uint64(i + 1), Requests: []fsm.Request{r}}
	binary.BigEndian.PutUint64(e.Seed[:], s.index)
	raw := fsm.AppendEntry(nil, e)
	e, err := fsm.DecodeEntry(raw)
	if err != nil {
		s.t.Fatal(err)
	}
	s.index++
	s.bodies[s.index] = raw
	return s.states[i].Apply(s.index, e).Outcomes[0]
}

func (s *shelf) route(k fsm.Key) int {
	for _, d := range s.world.entities {
		if d.ID == k.Entity {
			return int(d.Partitions[int(k.Share)%len(d.Partitions)]) - 1
		}
	}
	s.t.Fatalf("no entity %d", k.Entity)
	return 0
}

func (s *shelf) Propose(_ context.Context, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	if s.fail != nil {
		if err := s.fail(c); err != nil {
			return fsm.Outcome{}, err
		}
	}
	return s.apply(s.route(k), fsm.Request{Entity: k.Entity, Sub: k.Sub, Command: c}), nil
}

func (s *shelf) Query(_ context.Context, k fsm.Key, ask fsm.Query) (fsm.Answer, error) {
	if s.fail != nil {
		if err := s.fail(ask); err != nil {
			return fsm.Answer{}, err
		}
	}
	a := s.states[s.route(k)].Query(fsm.QueryRequest{Entity: k.Entity, Sub: k.Sub, Query: ask})
	for i := range a.Messages {
		ref := a.Messages[i].Ref
		a.Messages[i].Body = s.bodies[ref.Index][ref.Offset : ref.Offset+ref.Length]
	}
	return a, nil
}

// queue makes an entity; edit may change its description.
func (s *shelf) queue(name string, edit ...func(*fsm.Descriptor)) *fsm.Descriptor {
	s.t.Helper()
	d := fsm.Descriptor{Kind: fsm.Queue, Name: name, LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20,
		MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited, DuplicateWindow: 600_000}
	for _, f := range edit {
		f(&d)
	}
	made, err := s.Create(context.Background(), d)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// send stores messages in turn over the shares.
func (s *shelf) send(d *fsm.Descriptor, session string, bodies ...string) {
	s.t.Helper()
	for i, body := range bodies {
		m := fsm.Message{Body: []byte(body), MessageID: body, SessionID: session, HasSession: d.RequiresSession}
		if strings.HasPrefix(body, "later") {
			m.ScheduledAt = fsm.Wall(now.Add(time.Hour).UnixMilli())
		}
		s.must(d, fsm.Main, i%len(d.Partitions), &fsm.Enqueue{Messages: []fsm.Message{m}})
	}
}

func (s *shelf) must(d *fsm.Descriptor, sub fsm.SubQueue, share int, c fsm.Command) fsm.Outcome {
	s.t.Helper()
	out, err := s.Propose(context.Background(), fsm.Key{Entity: d.ID, Sub: sub, Share: uint16(share)}, c)
	if err != nil || out.Refusal != fsm.None {
		s.t.Fatalf("%T: %v %d %s", c, err, out.Refusal, out.Detail)
	}
	return out
}

// end takes n messages of each share and settles them.
func (s *shelf) end(d *fsm.Descriptor, n uint32, v fsm.Verdict, reason string) {
	s.t.Helper()
	for share := range d.Partitions {
		for _, m := range s.must(d, fsm.Main, share, &fsm.Lock{Max: n}).Locked {
			s.must(d, fsm.Main, share, &fsm.Settle{Items: []fsm.SettleItem{{Token: m.Token, Verdict: v, Reason: reason}}})
		}
	}
}

// ask sends a request with the root key and decodes the answer into v.
func (i *inspector) ask(method, target, body string, v any, headers ...string) int {
	i.t.Helper()
	r := httptest.NewRequest(method, "http://host.test"+target, strings.NewReader(body))
	r.Header.Set("Authorization", token(root, rootKey, "https://host.test/"))
	for n := 0; n < len(headers); n += 2 {
		if r.Header.Del(headers[n]); headers[n+1] != "" {
			r.Header.Set(headers[n], headers[n+1])
		}
	}
	w := httptest.NewRecorder()
	i.api.ServeHTTP(w, r)
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			i.t.Fatalf("%s %s: %v in %s", method, target, err, w.Body)
		}
	}
	return w.Code
}

// list walks over all pages of a list and returns the entries under key as texts.
func (i *inspector) list(target, key string) (all []string, pages int) {
	i.t.Helper()
	for next := ""; ; pages++ {
		var page map[string]json.RawMessage
		if code := i.ask("GET", target+"&cursor="+next, "", &page); code != http.StatusOK {
			i.t.Fatalf("%s: %d %v", target, code, page)
		}
		var entries []json.RawMessage
		if err := json.Unmarshal(page[key], &entries); err != nil {
			i.t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, string(e))
		}
		if err := json.Unmarshal(page["next"], &next); err != nil {
			i.t.Fatal(err)
		}
		if next == "" {
			return all, pages + 1
		}
	}
}

func spread(d *fsm.Descriptor) { d.Partitioned, d.Partitions = true, []fsm.PartitionID{1, 2} }

func grouped(d *fsm.Descriptor) { d.RequiresSession = true }

// S-272, T-264: the locks of all shares, in pages, each once.
func TestOperatorsSeeLocks(t *testing.T) {
	i := newInspector(t)
	d := i.queue("a/orders", spread)
	i.send(d, "", "1", "2", "3", "4", "5", "6")
	var held []fsm.Delivery
	for share := range 2 {
		held = append(held, i.must(d, fsm.Main, share, &fsm.Lock{Max: 3}).Locked...)
	}
	locks, pages := i.list("/api/entities/a/orders/locks?max=2", "locks")
	if len(locks) != 6 || pages != 4 {
		t.Errorf("%d locks on %d pages", len(locks), pages)
	}
	for n, text := range locks {
		var l LockView
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if m := held[n]; l.SequenceNumber != uint64(m.Seq) || l.State != "active" || l.Token != fmt.Sprintf("%x", m.Token[2:6]) ||
			l.LockedUntil.UnixMilli() != int64(m.LockedUntil) {
			t.Errorf("lock %d is %s, want that of %+v", n, text, m)
		}
		if l.Client+l.Link+l.Remote != "" { // nobody of this node
			t.Errorf("lock %d is %s", n, text)
		}
	}
	one := i.queue("one")
	i.send(one, "", "1")
	i.apply(0, fsm.Request{ID: fsm.RequestID{Node: 1, Pump: 7, Counter: 1}, Entity: one.ID, Command: &fsm.Lock{Max: 1}})
	locks, _ = i.list("/api/entities/one/locks?max=5", "locks")
	if len(locks) != 1 || !strings.Contains(locks[0], `"takenBy":"1/7","client":"c","link":"link 7","remote":"127.0.0.1:9"`) {
		t.Errorf("%s", locks)
	}
}

// S-335: the list of locks tells how a session is held, and never what authorizes a take-over.
func TestOperatorsSeeHowASessionIsHeld(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", func(d *fsm.Descriptor) { d.RequiresSession = true })
	for _, id := range []string{"a", "b"} {
		i.must(d, fsm.Main, 0, &fsm.Enqueue{Messages: []fsm.Message{{SessionID: id, HasSession: true, Body: []byte("x")}}})
	}
	shared := i.must(d, fsm.Main, 0, &fsm.AcceptSession{ID: "a", Shared: true})
	i.must(d, fsm.Main, 0, &fsm.Lock{Max: 1, Session: shared.Session})
	alone := i.must(d, fsm.Main, 0, &fsm.AcceptSession{ID: "b"})
	i.must(d, fsm.Main, 0, &fsm.Lock{Max: 1, Session: alone.Session})
	locks, _ := i.list("/api/entities/orders/locks?max=5", "locks")
	want := []string{`"sessionId":"a","sessionMode":"shared"`, `"sessionId":"b","sessionMode":"exclusive"`}
	if len(locks) != 2 || !strings.Contains(locks[0], want[0]) || !strings.Contains(locks[1], want[1]) {
		t.Errorf("%v, want %v", locks, want)
	}
	for _, secret := range []fsm.LockToken{shared.Shared, shared.Session.Token, alone.Session.Token} {
		digits := fmt.Sprintf("%x", secret[2:])
		if all := strings.ReplaceAll(strings.Join(locks, ""), "-", ""); strings.Contains(all, digits[:8]) {
			t.Errorf("%s has %s", all, digits)
		}
	}
}

// S-274, S-275, T-276
func TestOperatorsSeeHistories(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", func(d *fsm.Descriptor) {
		d.ProcessedHistory, d.ProcessedHistoryBody, d.AcceptedHistory = true, true, true
	})
	i.send(d, "", "1", "2", "3")
	i.end(d, 1, fsm.Complete, "")
	i.end(d, 1, fsm.Kill, "bad")
	done, _ := i.list("/api/entities/orders/history?max=1", "records")
	if len(done) != 1 || !strings.Contains(done[0], `"messageId":"1"`) || !strings.Contains(done[0], `"body":"1"`) {
		t.Errorf("processed: %v", done)
	}
	sent, pages := i.list("/api/entities/orders/history?kind=accepted&max=2", "records")
	ends := make([]string, len(sent))
	for n, text := range sent {
		var r RecordView
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		ends[n] = r.MessageID + " " + r.End
	}
	if got, want := strings.Join(ends, ", "), "1 completed, 2 dead-lettered, 3 "; got != want || pages != 2 {
		t.Errorf("accepted on %d pages: %s, want %s", pages, got, want)
	}
}

// S-83, S-246: sessions and messages by state, session and number.
func TestOperatorsSeeSessionsAndMessages(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", grouped)
	for _, id := range []string{"", "b", "c"} {
		i.send(d, id, "of "+id, "later "+id)
	}
	if got, pages := i.list("/api/entities/orders/sessions?max=1", "sessions"); strings.Join(got, ",") != `"","b","c"` || pages != 4 {
		t.Errorf("sessions %v on %d pages", got, pages)
	}
	for target, want := range map[string]int{
		"max=2": 6, "state=active": 3, "state=scheduled": 3, "state=active,scheduled&max=1": 6, "state=deferred": 0,
		"session=b": 2, "session=&state=active": 1, "session=nobody": 0, "from=3": 4,
	} {
		if got, _ := i.list("/api/entities/orders/messages?"+target, "messages"); len(got) != want {
			t.Errorf("%s: %d messages, want %d: %v", target, len(got), want, got)
		}
	}
	p := i.queue("parts", spread)
	i.send(p, "", "1", "2", "3", "4")
	if got, _ := i.list("/api/entities/parts/messages?max=1", "messages"); len(got) != 4 {
		t.Errorf("over shares: %v", got)
	}
	if got, _ := i.list(fmt.Sprintf("/api/entities/parts/messages?from=%d", uint64(2)<<48|2), "messages"); len(got) != 1 {
		t.Errorf("from the second number of the second share: %v", got)
	}
}

// S-244, S-245: counters of each share, and a mark for one that does not answer.
func TestOperatorsSeeADescription(t *testing.T) {
	i := newInspector(t)
	d := i.queue("parts", spread)
	i.send(d, "", "1", "2", "3")
	var v struct {
		Kind     string
		Complete bool
		Counts   fsm.EntityCounts
		Shares   []struct {
			Counts *fsm.EntityCounts
			Error  string
		}
		Options OptionsView
	}
	if code := i.ask("GET", "/api/entities/PARTS/description", "", &v); code != 200 || !v.Complete || v.Counts.Active != 3 ||
		v.Shares[0].Counts.Active != 2 || v.Kind != "queue" {
		t.Errorf("%d %+v", code, v)
	}
	var names struct{ Counts map[string]uint64 }
	if i.ask("GET", "/api/entities/parts/description", "", &names); names.Counts["active"] != 3 || names.Counts["sizeBytes"] == 0 {
		t.Errorf("names of counts are not written as other names are: %v", names.Counts)
	}
	calls := 0
	i.fail = func(any) error {
		if calls++; calls == 2 {
			return fsm.ErrUnavailable
		}
		return nil
	}
	if code := i.ask("GET", "/api/entities/parts/description", "", &v); code != 200 || v.Complete || v.Shares[1].Error == "" {
		t.Errorf("with a silent share: %d %+v", code, v)
	}
}
