package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/rest"
)

// shelf is a catalog in memory behind the real management API.
type shelf struct {
	queues map[string]*fsm.Descriptor
	wishes map[fsm.NodeID]string
	// finalized says that an upgrade is. Until n2 is forgotten it cannot be.
	finalized bool
	rehomed   string
}

func (s *shelf) Get(_ context.Context, name string) (*fsm.Descriptor, error) {
	if d, ok := s.queues[strings.ToLower(name)]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("%s: %w", name, fsm.ErrNoEntity)
}

func (s *shelf) Some(ctx context.Context, names []string) ([]*fsm.Descriptor, error) {
	all := make([]*fsm.Descriptor, len(names))
	for i, name := range names {
		all[i], _ = s.Get(ctx, name) // the only error is that there is none
	}
	return all, nil
}

func (s *shelf) List(_ context.Context, _ fsm.EntityKind, skip, top int) ([]*fsm.Descriptor, error) {
	var all []*fsm.Descriptor
	for _, d := range s.queues {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *fsm.Descriptor) int { return cmp.Compare(a.Name, b.Name) })
	all = all[min(skip, len(all)):]
	return all[:min(top, len(all))], nil
}

func (s *shelf) Create(_ context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) {
	if _, ok := s.queues[strings.ToLower(d.Name)]; ok {
		return nil, &fsm.RefusedError{Refusal: fsm.EntityExists, Detail: "it exists"}
	}
	d.ID, d.Version, d.Partitions = 1, 1, []fsm.PartitionID{1}
	s.queues[strings.ToLower(d.Name)] = &d
	return &d, nil
}

func (s *shelf) Update(_ context.Context, d fsm.Descriptor) (*fsm.Descriptor, error) { return &d, nil }

func (s *shelf) Delete(_ context.Context, name string) error {
	if _, err := s.Get(context.Background(), name); err != nil {
		return err
	}
	delete(s.queues, strings.ToLower(name))
	return nil
}

func (s *shelf) Subscriptions(context.Context, *fsm.Descriptor, int, int) ([]*fsm.Descriptor, error) {
	return nil, nil
}

func (s *shelf) PutRule(context.Context, fsm.EntityID, fsm.Rule, bool) (*fsm.Descriptor, error) {
	return nil, fsm.ErrNoEntity
}

func (s *shelf) DropRule(context.Context, fsm.EntityID, string) (*fsm.Descriptor, error) {
	return nil, fsm.ErrNoEntity
}

func (s *shelf) Counts(context.Context, *fsm.Descriptor) (fsm.EntityCounts, bool, error) {
	return fsm.EntityCounts{}, true, nil
}

func (s *shelf) Cluster(context.Context) rest.ClusterStatus {
	nodes := []rest.NodeStatus{{ID: "aaaa-1", State: "alive"}, {ID: "aabb-2", UUID: "b-2", State: "alive", Leads: 2, Replicas: 3, Zone: "rack-7"}}
	switch s.wishes["aabb-2"] {
	case "drain":
		nodes[1].Wish, nodes[1].Leads, nodes[1].Stays = "drain", 0, "no other node is free"
	case "remove":
		nodes[1].Wish = "remove"
	case "forget": // one that was lost had the name before, and has it again
		nodes[1] = rest.NodeStatus{ID: "aabb-2", UUID: "lost-9", State: "unknown"}
	}
	var moving []rest.RehomingStatus
	switch s.rehomed {
	case "failed":
		moving = append(moving, rest.RehomingStatus{Entity: "Failed", ShareMove: rest.ShareMove{From: 2, To: 1}, Step: "failed", Why: "because"})
	case "slow":
		moving = append(moving, rest.RehomingStatus{Entity: "slow", ShareMove: rest.ShareMove{From: 2, To: 1}, Step: "copy"})
	}
	return rest.ClusterStatus{
		ClusterVersion: "0.0-1", Knows: "0.1-1", Nodes: nodes, Rehomings: moving,
		Partitions: []rest.PartitionStatus{{ID: 3, Leader: "aaaa-1", Term: 7,
			Differs: []string{"aabb-2 is wanted and not taken in yet"}}},
		Alarms: []rest.Alarm{{Name: "disk-space", Reason: "disk is nearly full"}},
		Clock:  &rest.ClockStatus{AheadMillis: -3_600_000, Wrong: true},
	}
}

func (s *shelf) Ready(context.Context) error { return nil }

func (s *shelf) Checks(context.Context) []rest.Check { return nil }

func (s *shelf) TransferLeader(_ context.Context, p fsm.PartitionID, to fsm.NodeID) error {
	if p != 3 || to != "aabb-2" {
		return fmt.Errorf("partition %d to %s: %w", p, to, fsm.ErrNoEntity)
	}
	return nil
}

func (s *shelf) Wish(_ context.Context, verb string, n fsm.NodeID) error {
	s.wishes[n] = verb
	return nil
}

func (s *shelf) Rebalance(_ context.Context, n fsm.NodeID) (int, []string, error) {
	return 1, []string{"partition 3 was not handed to " + string(n)}, nil
}

func (s *shelf) Rehome(_ context.Context, entity string, to fsm.PartitionID, dryRun bool) ([]rest.ShareMove, error) {
	if entity == "level" {
		return nil, nil
	}
	if !dryRun {
		s.rehomed = entity
	}
	return []rest.ShareMove{{Share: 0, From: 2, To: max(to, 1)}}, nil
}

func (s *shelf) Upgrade(context.Context) rest.UpgradeStatus {
	u := rest.UpgradeStatus{Version: "0.0-1", Knows: "0.1-1", Nodes: []rest.NodeProgram{
		{ID: "n1", UUID: "a-1", Program: "0.1.0", Knows: "0.1-1"}, {ID: "n2", UUID: "b-2", Problem: "it is away"}}}
	switch {
	case s.finalized:
		u.Version = "0.1-1"
	case s.wishes["aabb-2"] != "forget":
		u.Waits = "node n2 is away"
	default:
		u.Next = "0.1-1"
	}
	return u
}

func (s *shelf) Finalize(ctx context.Context) (rest.UpgradeStatus, error) {
	if u := s.Upgrade(ctx); u.Waits != "" {
		return u, fmt.Errorf("the cluster version was not raised: %s", u.Waits)
	}
	s.finalized = true
	return s.Upgrade(ctx), nil
}

// serveShelf returns the address of the API.
func serveShelf(t *testing.T) string {
	t.Helper()
	policies, err := auth.New(0)
	if err != nil {
		t.Fatal(err)
	}
	err = policies.Replace("", auth.Policy{Name: "n", Primary: "k", Rights: auth.All},
		auth.Policy{Name: "listen", Primary: "k", Rights: auth.Listen})
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{queues: map[string]*fsm.Descriptor{}, wishes: map[fsm.NodeID]string{}}
	api, err := rest.New(rest.Defaults(), rest.Deps{Entities: s, Topics: s, Cluster: s, Policies: policies,
		Metrics: prometheus.NewRegistry(), Now: time.Now,
		Refusals: refusal.New(7, hclog.NewNullLogger(), time.Now)}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Operations())
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// execute runs a command line and returns what it printed and its exit code.
func execute(t *testing.T, c *cobra.Command, stdin string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetIn(strings.NewReader(stdin))
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err) })
	err := c.ExecuteContext(t.Context())
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), exit.Code(err)
}

func TestQueueCommands(t *testing.T) {
	host := serveShelf(t)
	cs := "Endpoint=sb://" + host + ";SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
	weak := strings.Replace(cs, "=n;", "=listen;", 1)
	wrong := strings.Replace(cs, "SharedAccessKey=k", "SharedAccessKey=x", 1)
	steps := []struct {
		name string
		cs   string
		args []string
		code int
		want string
	}{
		{"nothing is listed at first", cs, []string{"list", "-o", "json"}, 0, "[]"},
		{"create", cs, []string{"create", "Orders", "--session", "--lock-duration", "45s",
			"--max-delivery-count", "3", "-o", "json"}, 0, `"lockDuration":"PT45S"`},
		{"a second create is a conflict", cs, []string{"create", "orders"}, exit.Conflict, "orders exists already"},
		{"show keeps the name as created", cs, []string{"show", "ORDERS", "-o", "json"}, 0, `"name":"Orders"`},
		{"show tells of sessions", cs, []string{"show", "orders", "-o", "json"}, 0, `"requiresSession":true`},
		{"show of nothing is not found", cs, []string{"show", "none"}, exit.NotFound, "there is no none"},
		{"the table has a heading", cs, []string{"list"}, 0, "NAME"},
		{"the table has the queue", cs, []string{"list"}, 0, "Orders"},
		{"a wrong key is unauthorised", wrong, []string{"list"}, exit.Unauthorised, "401"},
		{"a key without Manage is unauthorised", weak, []string{"create", "x"}, exit.Unauthorised, "401"},
		{"a bad value is a usage error", cs, []string{"create", "x", "--lock-duration", "1h"}, exit.Usage, "400"},
		{"a name with a sign of its own is a usage error", cs, []string{"create", "a%b"}, exit.Usage, `"a%b" is no name: a name has letters, digits`},
		{"so is one that looks escaped", cs, []string{"create", "a%20b"}, exit.Usage, `"a%20b" is no name`},
		{"a flag that nobody knows is a usage error", cs, []string{"list", "--nonsense"}, exit.Usage, "nonsense"},
		{"a missing name is a usage error", cs, []string{"create"}, exit.Usage, "takes the name of one queue, got 0 arguments"},
		{"an unknown output is a usage error", cs, []string{"list", "-o", "xml"}, exit.Usage, "xml"},
		{"delete", cs, []string{"delete", "orders"}, 0, "deleted Orders"},
		{"a second delete is not found", cs, []string{"delete", "orders"}, exit.NotFound, "there is no orders"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			out, code := execute(t, NewQueueCommand(), "", append(s.args, "--connection-string", s.cs)...)
			if code != s.code || !strings.Contains(out, s.want) {
				t.Errorf("exit code %d, want %d; printed %q, want %q in it", code, s.code, out, s.want)
			}
			if strings.Contains(out, "SharedAccessKey=") {
				t.Errorf("the output shows the key: %q", out)
			}
		})
	}
}

func TestQueueListReadsEveryPage(t *testing.T) {
	host := serveShelf(t)
	cs := "Endpoint=sb://" + host + ";SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
	const n = 2*dial.AtomPageSize + 7
	for i := range n {
		if out, code := execute(t, NewQueueCommand(), "", "create", fmt.Sprint("q", i), "--connection-string", cs); code != 0 {
			t.Fatal(out)
		}
	}
	out, code := execute(t, NewQueueCommand(), "", "list", "-o", "json", "--connection-string", cs)
	var all []struct{ Name string }
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %.200s", code, err, out)
	}
	if len(all) != n {
		t.Errorf("listed %d queues, want %d", len(all), n)
	}
}

func TestClusterCommands(t *testing.T) {
	ops := serveShelf(t)
	steps := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"status is a table", []string{"status"}, 0, "aaaa-1"},
		{"status tells zones", []string{"status"}, 0, "rack-7"},
		{"status tells what is not as it should be", []string{"status"}, 0, "partition 3: aabb-2 is wanted"},
		{"status tells of a wrong clock", []string{"status"}, 0, "is -1h0m0s ahead"},
		{"status is JSON", []string{"status", "-o", "json"}, 0, `"term":7`},
		{"transfer by a whole id", []string{"transfer-leader", "3", "aabb-2"}, 0, "led by aabb-2"},
		{"transfer by the beginning of an id", []string{"transfer-leader", "3", "aabb"}, 0, "led by aabb-2"},
		{"an ambiguous beginning", []string{"transfer-leader", "3", "aa"}, exit.Usage, "any of"},
		{"an unknown node", []string{"transfer-leader", "3", "zz"}, exit.NotFound, "no node"},
		{"an unknown partition", []string{"transfer-leader", "9", "aabb"}, exit.NotFound, "404"},
		{"a partition that is no number", []string{"transfer-leader", "x", "aabb"}, exit.Usage, "neither a number nor catalog"},
		{"remove without waiting", []string{"remove", "aabb", "--wait", "0"}, 0, "the cluster works on it"},
		{"remove that takes longer than is waited", []string{"remove", "aabb", "--wait", "1ns"}, exit.Failed,
			"leads 2 groups and holds 3 replicas"},
		{"status tells of a wish", []string{"status"}, 0, "aabb-2 is wanted empty (remove)"},
		{"undrain", []string{"undrain", "aabb"}, 0, "gets its share again"},
		{"drain with no node free", []string{"drain", "aabb"}, 0, "leads nothing and keeps 3 replicas: no other node is free"},
		{"drain as JSON", []string{"drain", "aabb", "-o", "json"}, 0, `"done":true`},
		{"rebalance", []string{"rebalance"}, 0, "handed over 1 leadership"},
		{"rebalance one", []string{"rebalance", "aabb"}, 0, "partition 3 was not handed to aabb-2"},
		{"rehome", []string{"rehome", "orders"}, 0, "share 0: partition 2 to 1"},
		{"rehome to", []string{"rehome", "orders", "--to", "3", "--dry-run"}, 0, "share 0: partition 2 to 3"},
		{"rehome level", []string{"rehome", "level"}, 0, "nothing to move"},
		{"rehome nothing", []string{"rehome"}, exit.Usage, "takes 1 arguments"},
		{"rehome failed", []string{"rehome", "failed"}, exit.Failed, "stays in partition 2: because"},
		{"rehome slow", []string{"rehome", "slow", "--wait", "10ms"}, exit.Failed, "share 0 moves from partition 2 to 1 (copy)"},
		{"rebalance two", []string{"rebalance", "a", "b"}, exit.Usage, "at most one node"},
		{"status tells of an upgrade that is not finalized", []string{"status"}, 0, "the cluster version is 0.0-1, and the program of"},
		{"upgrade", []string{"upgrade"}, exit.Usage, "needs a subcommand"},
		{"upgrade that waits for a node", []string{"upgrade", "status"}, 0, "0.0-1: it cannot be raised: node n2 is away"},
		{"upgrade that cannot be finalized", []string{"upgrade", "finalize"}, exit.Conflict, "was not raised: node n2 is away"},
		{"drain of an unknown node", []string{"drain", "zz"}, exit.NotFound, "no node"},
		{"drain of no node", []string{"drain"}, exit.Usage, "takes 1 arguments"},
		{"forget", []string{"forget", "aabb"}, 0, "the cluster has forgotten the node"},
		{"upgrade that nothing is in the way of", []string{"upgrade", "status"}, 0, "every node knows 0.1-1. Run busbar"},
		{"upgrade as JSON", []string{"upgrade", "status", "-o", "json"}, 0, `"next":"0.1-1"`},
		{"upgrade names programs", []string{"upgrade", "status"}, 0, "n1    0.1.0    0.1-1"},
		{"upgrade names silent nodes", []string{"upgrade", "status"}, 0, "n2    unknown  does not answer"},
		{"upgrade is finalized", []string{"upgrade", "finalize"}, 0, "cluster version 0.1-1: nothing is to be finalized"},
		{"no subcommand", nil, exit.Usage, "needs a subcommand"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			out, code := execute(t, NewClusterCommand(), "", append(s.args, "--ops", ops)...)
			if code != s.code || !strings.Contains(out, s.want) {
				t.Errorf("exit code %d, want %d; printed %q, want %q in it", code, s.code, out, s.want)
			}
		})
	}
}

func TestUnreachableBrokerFailsAtRunTime(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close() // its port is free again
	host := strings.TrimPrefix(gone.URL, "http://")
	cs := "Endpoint=sb://" + host + ";SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
	for name, c := range map[string]*cobra.Command{
		"list": NewQueueCommand(), "send": NewSendCommand(), "receive": NewReceiveCommand(), "peek": NewPeekCommand(),
	} {
		t.Run(name, func(t *testing.T) {
			arg := "q"
			if name == "list" {
				arg = "list"
			}
			args := []string{arg, "--connection-string", cs, "--timeout", "5s"}
			if name == "send" {
				args = append(args, "body")
			}
			if out, code := execute(t, c, "", args...); code != exit.Failed {
				t.Errorf("exit code %d, want %d: %s", code, exit.Failed, out)
			}
		})
	}
}

func TestDataCommandsCheckTheirCommandLine(t *testing.T) {
	const cs = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "")
	cases := []struct {
		name string
		c    *cobra.Command
		args []string
		want string
	}{
		{"no queue", NewPeekCommand(), []string{"--connection-string", cs}, "name a queue"},
		{"a property without =", NewSendCommand(), []string{"q", "x", "--property", "a", "--connection-string", cs}, "NAME=TEXT"},
		{"a count of none", NewSendCommand(), []string{"q", "x", "--count", "0", "--connection-string", cs}, "--count"},
		{"a count of standard input", NewSendCommand(), []string{"q", "--count", "2", "--connection-string", cs}, "--count"},
		{"a file and a body", NewSendCommand(), []string{"q", "x", "--file", "f", "--connection-string", cs}, "not both"},
		{"two queues", NewReceiveCommand(), []string{"q", "p", "--connection-string", cs}, "one queue"},
		{"nothing to receive", NewReceiveCommand(), []string{"q", "--max", "0", "--connection-string", cs}, "--max"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, code := execute(t, c.c, "", c.args...)
			if code != exit.Usage || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d; printed %q, want %q in it", code, exit.Usage, out, c.want)
			}
		})
	}
}

func TestSendSource(t *testing.T) {
	read := func(s sendFlags, bodies []string, in string) []string {
		t.Helper()
		source, err := s.source(bodies, strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for b, err := range source {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
		return out
	}
	if got := read(sendFlags{count: 2}, []string{"a", "b"}, ""); !slices.Equal(got, []string{"a", "b", "a", "b"}) {
		t.Errorf("bodies twice: %v", got)
	}
	if got := read(sendFlags{count: 1}, nil, "one\ntwo\n\nfour"); !slices.Equal(got, []string{"one", "two", "", "four"}) {
		t.Errorf("lines: %q", got)
	}
}

func TestPrintedTextCannotSteerTheTerminal(t *testing.T) {
	var out bytes.Buffer
	p := &messagePrinter{w: &out}
	session := "a\x1b[2Jb"
	m := &amqp.Message{Data: [][]byte{[]byte("x\ny\x07")}, Properties: &amqp.MessageProperties{GroupID: &session}}
	if err := p.print(describe(m, true)); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07") || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("printed %q", out.String())
	}
}

func TestDescribeMessage(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &amqp.Message{
		Header:                &amqp.MessageHeader{DeliveryCount: 2},
		Annotations:           amqp.Annotations{"x-opt-sequence-number": int64(42), "x-opt-enqueued-time": at},
		Properties:            &amqp.MessageProperties{MessageID: "m"},
		ApplicationProperties: map[string]any{"DeadLetterReason": "why", "a": int64(1)},
		Data:                  [][]byte{{0xff, 0xfe}},
	}
	got := describe(m, true)
	if got.SequenceNumber != 42 || got.DeliveryCount != 3 || got.MessageID != "m" || !got.EnqueuedAt.Equal(at) ||
		got.DeadReason != "why" || got.Properties["a"] != int64(1) || got.BodyEncoding != "base64" || got.Body != "//4=" {
		t.Errorf("got %+v", got)
	}
	if n := describe(m, false).DeliveryCount; n != 2 {
		t.Errorf("a peeked message shows %d deliveries, want 2", n)
	}
}

// A property of a message has the type that its name says; a colon that no type follows is one of the name.
func TestAPropertyHasAType(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]any{
		"a=5": "5", "a:int=5": int32(5), "a:INT=-5": int32(-5), "a:long=5000000000": int64(5000000000), "a:double=1.5": 1.5,
		"a:boolean=true": true, "a:string=5": "5", "a:dateTime=2026-01-31T08:00:00Z": at, "a=": "", "a=b=c": "b=c",
	} {
		if name, got, err := readProperty(text); err != nil || name != "a" || got != want {
			t.Errorf("%s: %q %#v %v, want %#v", text, name, got, err, want)
		}
	}
	if name, got, err := readProperty("urn:a=5"); err != nil || name != "urn:a" || got != "5" {
		t.Errorf("a name with a colon: %q %v %v", name, got, err)
	}
	for _, text := range []string{"a", "=5", "a:int=5000000000", "a:int=x", "a:boolean=perhaps", "a:base64Binary=AA=="} {
		if _, got, err := readProperty(text); exit.Code(err) != exit.Usage {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}
