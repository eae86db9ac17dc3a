package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
)

// scrape reads a page of metrics: the value of each series, as text, by its name and labels.
func (l *liveNode) scrape(t *testing.T, path string) map[string]string {
	t.Helper()
	res, text := l.requestTo(t, l.opsHost(), http.MethodGet, path, "", "none")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, res.StatusCode, text)
	}
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && !strings.HasPrefix(line, "#") {
			all[series+"}"] = value
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			all[name] = value
		}
	}
	return all
}

// wantSeries compares some series. The braces stand around the labels in the order of Prometheus' text.
func wantSeries(t *testing.T, what string, got map[string]string, want map[string]string) {
	t.Helper()
	for _, series := range slices.Sorted(maps.Keys(want)) {
		if got[series] != want[series] {
			t.Errorf("%s: %s is %q, want %q", what, series, got[series], want[series])
		}
	}
}

// awaitSeries scrapes until some series have their values. A client does not wait until its settlement is applied.
func (l *liveNode) awaitSeries(t *testing.T, what, path string, want map[string]string) map[string]string {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := l.scrape(t, path)
		settled := true
		for series, value := range want {
			settled = settled && got[series] == value
		}
		if settled || time.Now().After(deadline) {
			wantSeries(t, what, got, want)
			return got
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// amqpSession opens a session of a client that introduces itself as one of the libraries.
func (l *liveNode) amqpSession(t *testing.T, properties map[string]any) *amqp.Session {
	t.Helper()
	p := l.cfg.Policies[0]
	conn, err := amqp.Dial(t.Context(), "amqp://"+l.host, &amqp.ConnOptions{Properties: properties,
		SASLType: amqp.SASLTypePlain(p.Name, string(p.Primary))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := conn.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trafficked is a client that does one thing of each kind.
type trafficked struct {
	t    *testing.T
	s    *amqp.Session
	out  *amqp.Sender
	in   *amqp.Receiver
	dead *amqp.Receiver
}

func (c *trafficked) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *trafficked) send(bodies ...string) {
	c.t.Helper()
	for _, b := range bodies {
		c.must(c.out.Send(c.t.Context(), amqp.NewMessage([]byte(b)), nil))
	}
}

func (c *trafficked) receive(from *amqp.Receiver) *amqp.Message {
	c.t.Helper()
	c.must(from.IssueCredit(1))
	m, err := from.Receive(c.t.Context(), nil)
	c.must(err)
	return m
}

// Every metric of an entity has the value that the traffic gives it.
func TestMetricsOfAnEntityAreThoseOfItsTraffic(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	queueOf := func(lock string, headers ...string) {
		l.put(t, "/q", "QueueDescription", "<LockDuration>"+lock+"</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"+
			"<DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration><MaxDeliveryCount>2</MaxDeliveryCount>", headers...)
	}
	queueOf("PT5M") // no lock runs out before a test on a busy machine has seen it
	began := time.Now()
	c := &trafficked{t: t, s: l.amqpSession(t, map[string]any{"product": "MSGolangClient"})}
	var err error
	c.out, err = c.s.NewSender(t.Context(), "q", nil)
	c.must(err)
	c.in, err = c.s.NewReceiver(t.Context(), "q", &amqp.ReceiverOptions{Credit: -1})
	c.must(err)
	c.send("completed", "abandoned", "deferred", "dead", "left")
	c.must(c.in.AcceptMessage(t.Context(), c.receive(c.in)))
	abandoned := c.receive(c.in)
	c.must(c.in.ModifyMessage(t.Context(), abandoned, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	c.must(c.in.AcceptMessage(t.Context(), c.receive(c.in))) // the same one again
	c.must(c.in.ModifyMessage(t.Context(), c.receive(c.in), &amqp.ModifyMessageOptions{UndeliverableHere: true}))
	c.must(c.in.RejectMessage(t.Context(), c.receive(c.in), &amqp.Error{Condition: "com.microsoft:dead-letter",
		Info: map[string]any{"DeadLetterReason": "a reason of its own"}}))
	scheduled := amqp.NewMessage([]byte("later"))
	scheduled.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(time.Hour)}
	c.must(c.out.Send(t.Context(), scheduled, nil))
	c.receive(c.in) // "left", which stays locked

	got := l.awaitSeries(t, "traffic", "/metrics/entities?match=Q", map[string]string{
		`busbar_entity_messages{entity="q",state="active"}`:               "1",
		`busbar_entity_messages{entity="q",state="deferred"}`:             "1",
		`busbar_entity_messages{entity="q",state="scheduled"}`:            "1",
		`busbar_entity_messages{entity="q",state="dead-letter"}`:          "1",
		`busbar_entity_messages{entity="q",state="transfer"}`:             "0",
		`busbar_entity_messages{entity="q",state="transfer-dead-letter"}`: "0",
		`busbar_entity_locks{entity="q"}`:                                 "1",
		`busbar_entity_sessions{entity="q"}`:                              "0",
		`busbar_entity_size_max_bytes{entity="q"}`:                        "1.073741824e+09",
		`busbar_entity_receivers{entity="q"}`:                             "1",
		`busbar_entity_senders{entity="q"}`:                               "1",
		`busbar_entity_messages_in_total{entity="q"}`:                     "6",
		`busbar_entity_messages_out_total{entity="q",subqueue="main"}`:    "6",
		`busbar_entity_completed_total{entity="q",subqueue="main"}`:       "2",
		`busbar_entity_abandoned_total{entity="q",subqueue="main"}`:       "1",
		`busbar_entity_deferred_total{entity="q",subqueue="main"}`:        "1",
		`busbar_entity_dead_lettered_total{entity="q",reason="receiver"}`: "1",
		`busbar_entity_dead_lettered_total{entity="q",reason="expired"}`:  "0",
		`busbar_entity_expired_total{entity="q"}`:                         "0",
		`busbar_entity_locks_lost_total{entity="q"}`:                      "0",
		`busbar_entity_activated_total{entity="q"}`:                       "0",
		`busbar_entity_forwarded_total{entity="q"}`:                       "0",
		`busbar_entities_left_out`:                                        "0",
	})
	counts, _, err := l.node.router.Counts(t.Context(), l.node.directory.View().Entity("q"))
	c.must(err)
	if want := fmt.Sprint(counts.SizeBytes); got[`busbar_entity_size_bytes{entity="q"}`] != want {
		t.Errorf("size %s, want %s", got[`busbar_entity_size_bytes{entity="q"}`], want)
	}
	for _, subqueue := range []string{"main", "dead-letter"} {
		var age float64
		text := got[fmt.Sprintf(`busbar_entity_oldest_message_age_seconds{entity="q",subqueue=%q}`, subqueue)]
		if _, err := fmt.Sscan(text, &age); err != nil || age < 0 || age > time.Since(began).Seconds() {
			t.Errorf("the oldest message of %s is %q seconds old, and the test %v", subqueue, text, time.Since(began))
		}
	}
	var in, out float64
	fmt.Sscan(got[`busbar_entity_bytes_in_total{entity="q"}`], &in)
	fmt.Sscan(got[`busbar_entity_bytes_out_total{entity="q",subqueue="main"}`], &out)
	if in < 6*20 || in > 6*200 || out < 6*20 || out > 6*200 {
		t.Errorf("%v bytes in and %v out, for six messages each", in, out)
	}
	wantSeries(t, "clients", l.scrape(t, "/metrics"), map[string]string{
		`busbar_client_connections{protocol="amqp",sdk="go"}`: "1",
		`busbar_entity_messages_in_total{entity="q"}`:         "6",
	})

	c.dead, err = c.s.NewReceiver(t.Context(), "q/$DeadLetterQueue", &amqp.ReceiverOptions{Credit: -1})
	c.must(err)
	c.must(c.dead.AcceptMessage(t.Context(), c.receive(c.dead)))
	brief := amqp.NewMessage([]byte("brief"))
	brief.Header = &amqp.MessageHeader{TTL: time.Millisecond}
	c.must(c.out.Send(t.Context(), brief, nil))
	time.Sleep(10 * time.Millisecond) // A receiver with credit can get the message within its millisecond.
	c.must(c.in.IssueCredit(1))       // somebody who listens, so that what has expired is looked for
	got = l.awaitSeries(t, "time", "/metrics/entities?match=q", map[string]string{
		`busbar_entity_expired_total{entity="q"}`:                             "1",
		`busbar_entity_dead_lettered_total{entity="q",reason="expired"}`:      "1",
		`busbar_entity_messages_out_total{entity="q",subqueue="dead-letter"}`: "1",
		`busbar_entity_completed_total{entity="q",subqueue="dead-letter"}`:    "1",
		`busbar_entity_receivers{entity="q"}`:                                 "2",
	})
	// The lock of another message runs out after five seconds, and perhaps that of its second delivery.
	queueOf("PT5S", "If-Match", "*")
	c.send("lost") // the one who listens gets it
	for deadline := time.Now().Add(time.Minute); got[`busbar_entity_locks_lost_total{entity="q"}`] == "0"; {
		if time.Now().After(deadline) {
			t.Fatal("no lock is lost")
		}
		time.Sleep(50 * time.Millisecond)
		got = l.scrape(t, "/metrics/entities?match=q")
	}
}

// Copies, moves, schedules and drops are in the metrics of the entities that they concern.
func TestMetricsOfTopicsAndMoves(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/end", "QueueDescription", "")
	l.put(t, "/t", "TopicDescription", "")
	l.put(t, "/t/Subscriptions/stays", "SubscriptionDescription", "")
	l.put(t, "/t/Subscriptions/goes", "SubscriptionDescription", "<ForwardTo>end</ForwardTo>")
	l.put(t, "/alone", "TopicDescription", "")
	s := l.amqpSession(t, map[string]any{"product": "azure-messaging-servicebus", "user-agent": "app azsdk-java-azure-messaging-servicebus/7.17"})
	for _, topic := range []string{"t", "alone"} {
		out, err := s.NewSender(t.Context(), topic, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Send(t.Context(), amqp.NewMessage([]byte("m")), nil); err != nil {
			t.Fatal(err)
		}
		soon := amqp.NewMessage([]byte("s"))
		soon.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(300 * time.Millisecond)}
		if err := out.Send(t.Context(), soon, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		`busbar_entity_messages_in_total{entity="t"}`:                          "2",
		`busbar_entity_activated_total{entity="t"}`:                            "1",
		`busbar_entity_messages{entity="t",state="scheduled"}`:                 "0",
		`busbar_entity_senders{entity="t"}`:                                    "1",
		`busbar_entity_messages_in_total{entity="t/Subscriptions/stays"}`:      "2",
		`busbar_entity_messages_in_total{entity="t/Subscriptions/goes"}`:       "2",
		`busbar_entity_forwarded_total{entity="t/Subscriptions/goes"}`:         "2",
		`busbar_entity_messages_in_total{entity="end"}`:                        "2",
		`busbar_entity_messages{entity="end",state="active"}`:                  "2",
		`busbar_entity_dropped_total{entity="alone",reason="no-subscription"}`: "2",
	}
	got := l.awaitSeries(t, "moves", "/metrics/entities?match=*", want)
	if v, ok := got[`busbar_entity_messages{entity="t",state="active"}`]; ok {
		t.Errorf("a topic has %s active messages", v)
	}
	some := l.scrape(t, "/metrics/entities?match=T/subscriptions/*")
	if _, ok := some[`busbar_entity_locks{entity="t/Subscriptions/stays"}`]; !ok {
		t.Errorf("no subscription in %v", some)
	}
	if _, ok := some[`busbar_entity_locks{entity="end"}`]; ok {
		t.Error("a queue among the subscriptions")
	}
	wantSeries(t, "clients", l.scrape(t, "/metrics"), map[string]string{`busbar_client_connections{protocol="amqp",sdk="java"}`: "1"})
	for _, path := range []string{"/metrics/entities", "/metrics/entities?match="} {
		if res, text := l.requestTo(t, l.opsHost(), http.MethodGet, path, "", "none"); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
}

// fixedEntities are so many entities: the one with id 1 stores one message, the next two, and so on.
type fixedEntities map[fsm.EntityID]*entityRow

func (f fixedEntities) entities() map[fsm.EntityID]*entityRow { return maps.Clone(f) }

func newFixedEntities(n int) fixedEntities {
	f := fixedEntities{}
	for i := range fsm.EntityID(n) {
		e := &entityRow{EntityMetrics: partition.EntityMetrics{}, leads: true}
		e.Entity, e.Name = i+1, fmt.Sprintf("e%d", i+1)
		e.Counts.Active = uint64(i + 1)
		f[i+1] = e
	}
	return f
}

// The largest and the most active have the places, and keep them for a while.
func TestThePlacesAreForTheLargestAndTheMostActive(t *testing.T) {
	now, places := time.Unix(0, 0), 4
	c := &entityChoice{most: func() int { return places }, now: func() time.Time { return now }}
	f := newFixedEntities(100)
	f[7].Tally.In, f[8].Tally.Out[fsm.SideDead] = 50, 40
	f[9].Tally.In = 30
	chosen := func() []fsm.EntityID {
		all := f.entities()
		c.choose(all)
		return slices.Sorted(maps.Keys(all))
	}
	steps := []struct {
		what   string
		change func()
		want   []fsm.EntityID
	}{
		{"the first choice", func() {}, []fsm.EntityID{7, 8, 99, 100}},
		{"a moment later", func() { f[10].Tally.In, f[50].Counts.Active = 1000, 1000; now = now.Add(time.Minute) }, []fsm.EntityID{7, 8, 99, 100}},
		{"one of them is deleted", func() { delete(f, 8) }, []fsm.EntityID{7, 50, 99, 100}},
		{"the next choice", func() { now = now.Add(choiceLasts); f[9].Tally.In = 31 }, []fsm.EntityID{9, 10, 50, 100}},
	}
	for _, s := range steps {
		s.change()
		got := chosen()
		if !slices.Equal(got, s.want) {
			t.Errorf("%s: %v, want %v", s.what, got, s.want)
		}
	}
	places = 5 // nothing moved since the last choice: the largest have all places, but for ties
	if got := chosen(); len(got) != 5 || !slices.Contains(got, 50) || !slices.Contains(got, 100) {
		t.Errorf("more places: %v", got)
	}
	if places = 99; len(chosen()) != 99 {
		t.Errorf("room for all: %v", chosen())
	}
}

// An alert asks by how much the dropped messages increased, which needs the zero: each of its reasons has a series before there is
// one to count.
func TestReasonsOfTheAlertBeginWithZero(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", "scripts", "monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(rules), `busbar_entity_dropped_total{reason=~"`)
	wanted, _, _ := strings.Cut(after, `"`)
	f := newFixedEntities(3)
	f[1].Kind, f[2].Kind, f[3].Kind = fsm.Queue, fsm.Topic, fsm.Subscription
	r := prometheus.NewRegistry()
	r.MustRegister(newEntityCollector(f, func(map[fsm.EntityID]*entityRow) {}))
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "busbar_entity_dropped_total" && m.GetCounter().GetValue() == 0 {
				told[m.GetLabel()[1].GetValue()] = true
			}
		}
	}
	for reason := range strings.SplitSeq(wanted, "|") {
		if !told[reason] {
			t.Errorf("no entity has a series for %q: %v", reason, told)
		}
	}
}

// What has no place is counted, and found on the page of entities.
func TestEntitiesWithoutAPlaceAreCounted(t *testing.T) {
	cfg := nodeConfig(t, nil)
	cfg.Limits.MetricEntities = 2
	l := openLive(t, cfg)
	for i := range 5 {
		l.put(t, fmt.Sprintf("/q%d", i), "QueueDescription", "")
	}
	got := map[string]string{}
	for got["busbar_entities_left_out"] != "3" {
		select {
		case <-t.Context().Done():
			t.Fatalf("left out: %q", got["busbar_entities_left_out"])
		case <-time.After(20 * time.Millisecond):
		}
		got = l.scrape(t, "/metrics")
	}
	count := func(series map[string]string) (n int) {
		for name := range series {
			if strings.HasPrefix(name, "busbar_entity_locks{") {
				n++
			}
		}
		return n
	}
	if n := count(got); n != 2 {
		t.Errorf("%d entities have series, want 2", n)
	}
	all := l.scrape(t, "/metrics/entities?match=Q*")
	if n := count(all); n != 5 || all["busbar_entities_left_out"] != "0" {
		t.Errorf("%d entities are found, %s left out", n, all["busbar_entities_left_out"])
	}
}

func TestGlobsOfEntities(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"orders", "orders", true}, {"ORDERS", "orders", true}, {"orders", "orders2", false}, {"order?", "orders", true},
		{"order?", "order", false}, {"*", "", true}, {"*", "a/b", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "a-b-b-d", false},
		{"t/Subscriptions/*", "T/subscriptions/x", true}, {"*s", "orders", true}, {"*s", "order", false}, {"", "a", false},
		{"ä?", "ÄÖ", true},
	} {
		if got := globMatches(c.pattern, c.name); got != c.want {
			t.Errorf("%q of %q: %v", c.pattern, c.name, got)
		}
	}
}

// Entities that nobody names any more do not stay in memory.
func TestADeletedEntityLeavesTheMetrics(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "")
	if _, ok := l.scrape(t, "/metrics")[`busbar_entity_locks{entity="q"}`]; !ok {
		t.Fatal("no series")
	}
	l.request(t, http.MethodDelete, "/q", "", "")
	for {
		if _, ok := l.scrape(t, "/metrics")[`busbar_entity_locks{entity="q"}`]; !ok {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the series stay")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// An entity that is deleted and created anew under its name has links for a moment yet. It spoils no page.
func TestAnEntityCreatedAnewSpoilsNoMetrics(t *testing.T) {
	f := newFixedEntities(3)
	f[1].Name, f[2].Name, f[1].receivers, f[2].receivers = "q", "q", 5, 7
	r := prometheus.NewRegistry()
	r.MustRegister(newEntityCollector(f, func(map[fsm.EntityID]*entityRow) {}))
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != "busbar_entity_receivers" {
			continue
		}
		got := map[string]float64{}
		for _, m := range family.GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		if want := map[string]float64{"q": 7, "e3": 0}; !maps.Equal(got, want) {
			t.Errorf("receivers %v, want %v", got, want)
		}
		return
	}
	t.Error("nothing tells of receivers")
}
