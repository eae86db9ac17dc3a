package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The operators' page lists each metric, and none that is not there.
func TestEachMetricIsInTheOperatorsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("`(busbar_[a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	descs := make(chan *prometheus.Desc, 100)
	newNodeCollector(nil).Describe(descs)
	newReloadCollector(nil).Describe(descs)
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
			t.Errorf("docs/operating.md does not list %s", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(known, name) {
			t.Errorf("docs/operating.md lists %s, which is no metric", name)
		}
	}
}
