package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/process"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/transport"
)

// S-229: every limit can be set, and what is not set has its default.
func TestLimitsComeFromTheFile(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\n"
	c, err := load(writeConfig(t, base), nil, environment(nil))
	want := limits{Entities: 10_000, Subscriptions: 2_000, SQLFilters: 2_000, CorrelationFilters: 100_000,
		RuleText: 1_024, TransactionMessages: 100, ConcurrentReceives: 5_000, Connections: 10_000,
		ConnectionsPerHost: 5_000, Unauthenticated: 1_024, UnauthenticatedPerHost: 512, Links: 10_000, Operations: 128,
		ClientBytes: 1 << 30, TransactionBytes: 256 << 20, MetricEntities: 500}
	if err != nil || c.Limits != want || c.Limits.namespace() != (catalog.Limits{}) {
		t.Errorf("nothing set: %+v, %v", c.Limits, err)
	}
	c, err = load(writeConfig(t, base+"limits: {entities: 50000, subscriptions: 2, sql-filters: 3, "+
		"correlation-filters: 4, rule-text: 5, transaction-messages: 6, connections: 70, connections-per-host: 60, "+
		"unauthenticated: 50, unauthenticated-per-host: 40, links: 30, client-bytes: 20, transaction-bytes: 10, "+
		"operations: 9, metric-entities: 11}\n"), nil, environment(nil))
	want = limits{Entities: 50_000, Subscriptions: 2, SQLFilters: 3, CorrelationFilters: 4, RuleText: 5,
		TransactionMessages: 6, ConcurrentReceives: 5_000, Connections: 70, ConnectionsPerHost: 60, Unauthenticated: 50,
		UnauthenticatedPerHost: 40, Links: 30, Operations: 9, ClientBytes: 20, TransactionBytes: 10,
		MetricEntities: 11}
	inCatalog := catalog.Limits{Entities: 50_000, Subscriptions: 2, SQLFilters: 3, CorrelationFilters: 4,
		RuleChars: 5}
	if err != nil || c.Limits != want || c.Limits.namespace() != inCatalog {
		t.Errorf("all but one set: %+v, %v", c.Limits, err)
	}
}

// S-229: the limits of the file are those that clients meet.
func TestANodeKeepsItsLimits(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.Limits.Entities, c.Limits.RuleText = 2, 10 }))
	l.put(t, "/t", "TopicDescription", "")
	l.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	for _, row := range [][3]string{
		{"/q", atomOf("QueueDescription", ""), "2 entities exist, the maximum"},
		{"/t/Subscriptions/s/Rules/r", atomOf("RuleDescription", `<Filter i:type="SqlFilter"><SqlExpression>a = '12345'`+
			`</SqlExpression></Filter>`), "11 characters, maximum 10"},
	} {
		res, text := l.request(t, "PUT", row[0], row[1], "")
		if res.StatusCode != 403 || !strings.Contains(text, "SubCode=40300.") || !strings.Contains(text, row[2]) {
			t.Errorf("%s: %d %s", row[0], res.StatusCode, text)
		}
	}
}

func TestLimitsThatCannotBeSetAreNamed(t *testing.T) {
	_, err := load(writeConfig(t, "data-dir: /d\nroot-key: k\nlimits: {entities: 100001, subscriptions: 2001, "+
		"sql-filters: 0, correlation-filters: -1, rule-text: 1025, transaction-messages: 101, "+
		"concurrent-receives: 65537}\n"), nil, environment(nil))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"entities is 100001, want 1 to 100000", "subscriptions is 2001, want 1 to 2000",
		"sql-filters is 0", "correlation-filters is -1", "rule-text is 1025", "transaction-messages is 101",
		"concurrent-receives is 65537, want 1 to 65536"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %q in: %v", want, err)
		}
	}
	_, err = load(writeConfig(t, "data-dir: /d\nroot-key: k\nlimits: {receives: 1}\n"), nil, environment(nil))
	if err == nil || !strings.Contains(err.Error(), "receives") {
		t.Errorf("an unknown limit: %v", err)
	}
}

// F1: a limit that cannot be is refused with its file and line, and so are more sockets than the process may open.
func TestLimitsAreRefusedWhereTheyStand(t *testing.T) {
	descriptors, _ := process.MaxDescriptors()
	file := writeConfig(t, fmt.Sprintf("data-dir: /d\nroot-key: k\nlimits:\n  links: 0\n  connections: %d\n", descriptors))
	_, err := load(file, nil, environment(nil))
	if err == nil {
		t.Fatal("accepted")
	}
	sockets, reserve := room(descriptors, 6)
	sockets, reserve = sockets-128, reserve+128 // those of the operations port
	for _, want := range []string{file + ":4: limits: links is 0, want 1 to 10000",
		fmt.Sprintf("%s:5: limits: connections is %d, but of the %d files that the process may open %d are for its own: "+
			"raise the limit of open files (ulimit -n) or set at most %d", file, descriptors, descriptors, reserve, sockets)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %q in: %v", want, err)
		}
	}
}

// F1: the operations port cannot be given the places of all clients.
func TestPlacesOfTheOperationsPortFit(t *testing.T) {
	descriptors, _ := process.MaxDescriptors()
	sockets, reserve := room(descriptors, 6)
	for _, row := range [][2]string{
		{"0", "operations is 0, want 1 to 1048576"}, {"-3", "operations is -3, want 1 to 1048576"},
		{fmt.Sprint(sockets/2 + 1), fmt.Sprintf("operations is %d, but of the %d files that the process may open %d are for its "+
			"own, and at least half of the others for clients: raise the limit of open files (ulimit -n) or set at most %d",
			sockets/2+1, descriptors, reserve, sockets/2)},
	} {
		file := writeConfig(t, "data-dir: /d\nroot-key: k\nlimits:\n  operations: "+row[0]+"\n")
		_, err := load(file, nil, environment(nil))
		if want := file + ":4: limits: " + row[1]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	l := defaultLimits()
	l.Connections = 1
	l.fit(6, func(string) (string, bool) { return "", false }, t.Fatalf)
	if l.Operations != 128 && l.Operations != sockets/4 {
		t.Errorf("of %d places the operations port has %d", sockets, l.Operations)
	}
}

// F1: of few places, neither strangers nor one host of them get all, unless the limits are set so.
func TestFewPlacesAreShared(t *testing.T) {
	unset := func(string) (string, bool) { return "", false }
	few := func() *limits {
		l := defaultLimits()
		l.Connections = 100
		return &l
	}
	l := few()
	l.fit(6, unset, t.Fatalf)
	if l.ConnectionsPerHost != 100 || l.Unauthenticated != 50 || l.UnauthenticatedPerHost != 25 {
		t.Errorf("of 100 places one host has %d, strangers have %d, strangers of one host %d: want 100, 50, 25",
			l.ConnectionsPerHost, l.Unauthenticated, l.UnauthenticatedPerHost)
	}
	l = few()
	l.Unauthenticated, l.UnauthenticatedPerHost = 80, 4000
	l.fit(6, func(name string) (string, bool) { return "f:1: ", strings.HasPrefix(name, "unauthenticated") }, t.Fatalf)
	if l.Unauthenticated != 80 || l.UnauthenticatedPerHost != 100 {
		t.Errorf("strangers have %d places, those of one host %d: want the 80 and 100 that were set", l.Unauthenticated,
			l.UnauthenticatedPerHost)
	}
	l = few()
	l.Connections = 1
	l.fit(6, unset, t.Fatalf)
	if l.Unauthenticated != 1 || l.UnauthenticatedPerHost != 1 {
		t.Errorf("of one place strangers have %d and %d, want it", l.Unauthenticated, l.UnauthenticatedPerHost)
	}
}

// The rates of keys are off until they are set, and a rate that cannot be is refused with its file and line.
func TestRatesOfKeysAreSettings(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\nlimits:\n"
	for _, c := range []struct {
		lines string
		want  transport.KeyRate
		bad   []string // what stands behind the name of the file
	}{
		{lines: "  links: 5\n"},
		{lines: "  key-messages-per-second: 7\n  key-bytes-per-second: 80\n",
			want: transport.KeyRate{Messages: 7, MessageBurst: 7, Bytes: 80, ByteBurst: 80}},
		{lines: "  key-messages-per-second: 7\n  key-messages-burst: 70\n  key-bytes-per-second: 80\n  key-bytes-burst: 3\n",
			want: transport.KeyRate{Messages: 7, MessageBurst: 70, Bytes: 80, ByteBurst: 3}},
		{lines: "  key-messages-per-second: 0\n  key-bytes-per-second: -5\n", bad: []string{
			":4: limits: key-messages-per-second is 0, want 1 to 1099511627776; leave it out for no limit",
			":5: limits: key-bytes-per-second is -5, want 1 to 1099511627776; leave it out for no limit"}},
		{lines: "  key-messages-per-second: 1\n  key-messages-burst: 0\n  key-bytes-burst: 9\n", bad: []string{
			":5: limits: key-messages-burst is 0, want 1 to 1099511627776", ":6: limits: key-bytes-burst needs key-bytes-per-second"}},
	} {
		file := writeConfig(t, base+c.lines)
		got, err := load(file, nil, environment(nil))
		if f := got.frontConfig(1); len(c.bad) == 0 && (err != nil || f.KeyRate != c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.lines, f.KeyRate, err, c.want)
		}
		for _, want := range c.bad {
			if err == nil || !strings.Contains(err.Error(), file+want) {
				t.Errorf("%s: error %v, want %s", c.lines, err, want)
			}
		}
	}
}

// What a key has used of its rate is in the metrics, and nothing about rates that are not set.
func TestRatesOfKeysAreInTheMetrics(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.Limits.KeyMessages, c.Limits.KeyMessageBurst = 1, 3 }))
	l.put(t, "/q", "QueueDescription", "")
	for range 3 {
		if res, text := l.request(t, "POST", "/q/messages", "x", ""); res.StatusCode != 201 {
			t.Fatalf("%d %s", res.StatusCode, text)
		}
	}
	_, metrics := l.probe(t, "/metrics")
	for _, want := range []string{"busbar_limit_max{limit=\"key-messages\"} 3\n", "busbar_limit_used{limit=\"key-messages\"} "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if strings.Contains(metrics, "key-bytes") {
		t.Error("the metrics have a limit of bytes that is not set")
	}
}

// F1: what is not set follows from the open files that the process may have.
func TestConnectionsFollowFromTheOpenFiles(t *testing.T) {
	for _, c := range []struct{ descriptors, partitions, sockets int }{
		{300, 6, 150}, {1024, 6, 600}, {4096, 6, 3072}, {20_000, 6, 15_000}, {20_000, 1000, 10_000}, {1_048_576, 6, 786_432},
	} {
		sockets, reserve := room(c.descriptors, c.partitions)
		if sockets != c.sockets || sockets+reserve != c.descriptors {
			t.Errorf("%d open files, %d partitions: %d sockets, %d reserved, want %d", c.descriptors, c.partitions, sockets,
				reserve, c.sockets)
		}
	}
	l := defaultLimits()
	l.fit(1<<30, func(string) (string, bool) { return "", false }, t.Fatalf) // half is for so many partitions
	if n, _ := process.MaxDescriptors(); l.Connections != min(n-n/2-l.Operations, 10_000) || l.ConnectionsPerHost > l.Connections || l.Unauthenticated > l.Connections {
		t.Errorf("of %d open files: %+v", n, l)
	}
}
