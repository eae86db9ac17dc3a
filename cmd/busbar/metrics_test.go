package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
	newEntityCollector(nil, nil).Describe(descs)
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
