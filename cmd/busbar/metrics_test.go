package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/busbar-mq/busbar/fsm"
)

// The page of monitoring lists each metric, and none that is not there.
func TestEachMetricIsInThePageOfMonitoring(t *testing.T) {
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(page)) {
		for _, m := range regexp.MustCompile("`(busbar_[a-z_]+)`").FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(line, "|") { // a row of a table
				listed = append(listed, m[1])
			}
		}
	}
	descs := make(chan *prometheus.Desc, 100)
	newNodeCollector(nil).Describe(descs)
	newReloadCollector(nil).Describe(descs)
	newAuditCollector(nil).Describe(descs)
	newEntityCollector(nil, nil).Describe(descs)
	for _, h := range newTimings().all() {
		h.Describe(descs)
	}
	close(descs)
	known := []string{"busbar_build_info", "busbar_cluster_version", "busbar_known_version"}
	for d := range descs {
		known = append(known, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	if len(known) < 20 {
		t.Fatalf("only %q are metrics", known)
	}
	for _, name := range known {
		if !slices.Contains(listed, name) {
			t.Errorf("docs/monitoring.md does not list %s", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(known, name) {
			t.Errorf("docs/monitoring.md lists %s, which is no metric", name)
		}
	}
}

// What a node tells is clean by the linter of Prometheus, and is what the page of monitoring lists.
func TestAScrapeIsCleanAndDocumented(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.Limits.MetricEntities, c.AuditLog = 1, filepath.Join(t.TempDir(), "audit.log")
	}))
	l.put(t, "/q", "QueueDescription", "<MaxSizeInMegabytes>1024</MaxSizeInMegabytes><DeadLetteringOnMessageExpiration>false"+
		"</DeadLetteringOnMessageExpiration>")
	c := &trafficked{t: t, s: l.amqpSession(t, nil)}
	var err error
	c.out, err = c.s.NewSender(t.Context(), "q", nil)
	c.must(err)
	c.send("waits", "is purged")
	l.node.purgeOne(t, "q")
	res, text := l.requestTo(t, l.opsHost(), http.MethodGet, "/metrics", "", "none")
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (busbar_\w+) `).FindAllStringSubmatch(text, -1) {
		told[m[1]] = true
		if !strings.Contains(string(page), "`"+m[1]+"`") {
			t.Errorf("docs/monitoring.md does not list %s", m[1])
		}
	}
	// What one node without further traffic has no value of.
	for _, name := range []string{"busbar_clock_ahead_seconds"} {
		told[name] = true
	}
	for line := range strings.Lines(string(page)) {
		for _, m := range regexp.MustCompile("`(busbar_[a-z_]+)`").FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(line, "|") && !told[m[1]] {
				t.Errorf("docs/monitoring.md lists %s, which a scrape does not have", m[1])
			}
		}
	}
}

// purgeOne deletes the oldest message of a queue.
func (n *node) purgeOne(t *testing.T, queue string) {
	t.Helper()
	d, err := n.directory.Get(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	o, err := n.router.Propose(t.Context(), fsm.RequestID{}, fsm.Key{Entity: d.ID}, &fsm.DeleteMessages{Max: 1})
	if err != nil || o.Count != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
}
