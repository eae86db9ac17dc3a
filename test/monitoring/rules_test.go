package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// unit is what a rule must say of some series. Each of them has a sample a minute, in the notation of promtool.
type unit struct {
	alert  string
	series string
	at     time.Duration // when the rule is judged
	fires  []string      // the summaries of the alerts that fire then
}

// load returns the series of one line each, by the name of a series and its values.
func load(lines ...string) string { return "load 1m\n  " + strings.Join(lines, "\n  ") + "\n" }

// units has for each alert a case in which it fires, and one beside it that is well.
var units = []unit{
	{"BusbarNodeDown", load(`up{job="busbar",instance="n1"} 1x9`, `up{job="busbar",instance="n2"} 1 1 0x7`,
		`up{job="other",instance="o"} 0x9`), 4 * time.Minute, []string{"The node n2 does not answer the collector."}},
	{"BusbarNodeDown", load(`up{job="busbar",instance="n1"} 1 1 0 0 1x9`), 6 * time.Minute, nil},

	{"BusbarPartitionWithoutLeader", load(`busbar_partition_leading{partition="1",instance="n1"} 0x9`,
		`busbar_partition_leading{partition="1",instance="n2"} 0x9`, `busbar_partition_leading{partition="2",instance="n1"} 0x9`,
		`busbar_partition_leading{partition="2",instance="n2"} 1x9`), 2 * time.Minute, []string{"Nobody leads partition 1."}},
	{"BusbarPartitionWithoutLeader", load(`busbar_partition_leading{partition="1",instance="n1"} 1 0 0 0 0`,
		`busbar_partition_leading{partition="1",instance="n2"} 0 0 1 1 1`), 4 * time.Minute, nil},

	{"BusbarReplicaFailed", load(`busbar_partition_failed{partition="3",instance="n1"} 0 1x9`,
		`busbar_partition_failed{partition="4",instance="n1"} 0x10`), 3 * time.Minute,
		[]string{"The replica of partition 3 on n1 has failed."}},

	{"BusbarDiskFull", load(`busbar_alarm{alarm="disk-space",instance="n1"} 0 1`, `busbar_alarm{alarm="disk-space",instance="n2"} 0 0`,
		`busbar_alarm{alarm="clock",instance="n2"} 1 1`), time.Minute,
		[]string{"A disk of n1 or of most nodes of its partitions is full: senders are refused."}},

	{"BusbarDiskFilling", load(`busbar_disk_free_bytes{instance="n1"} 15e9-10e6x420`, `busbar_disk_free_bytes{instance="n2"} 15e9x420`,
		`busbar_disk_free_bytes{instance="n3"} 500e9-900e6x420`), 6 * time.Hour,
		[]string{"The disk of n1 will be full within a day."}},

	{"BusbarAlarm", load(`busbar_alarm{alarm="clock",instance="n1"} 1x9`, `busbar_alarm{alarm="disk-space",instance="n1"} 1x9`,
		`busbar_alarm{alarm="clock",instance="n2"} 1 1 1 0x6`), 6 * time.Minute, []string{"n1 has the alarm clock."}},

	{"BusbarCertificateExpires", load(`busbar_certificate_expiry_timestamp_seconds{use="shown",instance="n1"} 864000x90`,
		`busbar_certificate_expiry_timestamp_seconds{use="authority",instance="n1"} 86400000x90`), 61 * time.Minute,
		[]string{"A certificate (shown) of n1 ends within two weeks."}},

	{"BusbarReloadRefused", load(`busbar_config_last_reload_successful{instance="n1"} 1 0x20`,
		`busbar_config_last_reload_successful{instance="n2"} 1 0 0 1x20`), 15 * time.Minute, []string{"n1 refused its configuration."}},

	{"BusbarLimitNearlyUsed", load(`busbar_limit_used{limit="connections",instance="n1"} 950x9`,
		`busbar_limit_max{limit="connections",instance="n1"} 1000x9`, `busbar_limit_used{limit="links",instance="n1"} 5x9`,
		`busbar_limit_max{limit="links",instance="n1"} 10x9`), 6 * time.Minute,
		[]string{"n1 has used 90 % of the limit connections."}},

	{"BusbarQuotaNearlyUsed", load(`busbar_entity_size_bytes{entity="a",instance="n1"} 500x20`,
		`busbar_entity_size_bytes{entity="a",instance="n2"} 400x20`, `busbar_entity_size_max_bytes{entity="a",instance="n1"} 500x20`,
		`busbar_entity_size_max_bytes{entity="a",instance="n2"} 500x20`, `busbar_entity_size_bytes{entity="b",instance="n1"} 500x20`,
		`busbar_entity_size_max_bytes{entity="b",instance="n1"} 1000x20`, `busbar_entity_size_bytes{entity="c",instance="n1"} 9e9x20`),
		12 * time.Minute, []string{"a has used 80 % of its quota."}},

	{"BusbarDeadLetters", load(`busbar_entity_dead_lettered_total{entity="a",reason="expired",instance="n1"} 0 1x20`,
		`busbar_entity_dead_lettered_total{entity="a",reason="receiver",instance="n1"} 0+1x6 6x20`,
		`busbar_entity_dead_lettered_total{entity="a",reason="receiver",instance="n2"} 100+1x6 106x20`), 14 * time.Minute,
		[]string{"a dead-lettered more than ten messages in a quarter of an hour (receiver)."}},
	{"BusbarDeadLetters", load( // the counters of a node that restarts begin anew
		`busbar_entity_dead_lettered_total{entity="a",reason="receiver",instance="n1"} 1000x7 0x7`), 14 * time.Minute, nil},

	{"BusbarOldMessages", load(`busbar_entity_oldest_message_age_seconds{entity="a",subqueue="main",instance="n1"} 3000+60x30`,
		`busbar_entity_oldest_message_age_seconds{entity="b",subqueue="main",instance="n1"} 30x30`,
		`busbar_entity_oldest_message_age_seconds{entity="c",subqueue="dead-letter",instance="n1"} 90000x30`), 25 * time.Minute,
		[]string{"The oldest message of a waits for more than an hour."}},

	{"BusbarMessagesDropped", load(`busbar_entity_dropped_total{entity="a",reason="expired",instance="n1"} 0 1x20`,
		`busbar_entity_dropped_total{entity="b",reason="expired",instance="n1"} 7x20`,
		`busbar_entity_dropped_total{entity="a",reason="purged",instance="n1"} 0 5000x20`), 5 * time.Minute,
		[]string{"Messages of a ended without being completed (expired)."}},

	// Of more entities than limits.metric-entities the receivers of some are told nowhere.
	{"BusbarNoReceivers", load(`busbar_entity_messages{entity="q",state="active",instance="n1"} 1x40`,
		`busbar_entity_receivers{entity="q",instance="n1"} 0x40`, `busbar_entities_left_out{instance="n1"} 0x40`,
		`busbar_entities_left_out{instance="n2"} 7x40`), 35 * time.Minute, nil},
	{"BusbarNoReceivers", load(`busbar_entity_messages{entity="a",state="active",instance="n1"} 5x60`,
		`busbar_entity_receivers{entity="a",instance="n1"} 0x60`, `busbar_entity_receivers{entity="a",instance="n2"} 0x60`,
		`busbar_entity_messages{entity="b",state="active",instance="n1"} 5x60`, `busbar_entity_receivers{entity="b",instance="n1"} 0x60`,
		`busbar_entity_receivers{entity="b",instance="n2"} 1x60`, `busbar_entity_messages{entity="c",state="dead-letter",instance="n1"} 5x60`,
		`busbar_entity_messages{entity="c",state="active",instance="n1"} 0x60`, `busbar_entity_receivers{entity="c",instance="n1"} 0x60`),
		32 * time.Minute, []string{"a has messages and no receivers."}},

	{"BusbarSlowCommits", load(`busbar_commit_seconds_bucket{instance="n1",le="0.5"} 0+97x30`,
		`busbar_commit_seconds_bucket{instance="n1",le="1"} 0+100x30`, `busbar_commit_seconds_bucket{instance="n1",le="+Inf"} 0+100x30`,
		`busbar_commit_seconds_bucket{instance="n2",le="0.5"} 0+100x30`, `busbar_commit_seconds_bucket{instance="n2",le="1"} 0+100x30`,
		`busbar_commit_seconds_bucket{instance="n2",le="+Inf"} 0+100x30`), 20 * time.Minute,
		[]string{"One of a hundred commits of n1 takes more than half a second."}},
}

// Each rule fires in its case, of nothing else, and not in a case that is well.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	shown := map[string]bool{}
	byName := map[string]*rulefmt.Rule{}
	for _, r := range alertRules(t) {
		byName[r.Alert] = &r
	}
	for _, u := range units {
		r := byName[u.alert]
		if r == nil {
			t.Errorf("no rule %s", u.alert)
			continue
		}
		shown[u.alert] = shown[u.alert] || len(u.fires) > 0
		e := newEvaluator(t, promqltest.LoadedStorage(t, u.series))
		var got []string
		for _, a := range e.firing(t, r, u.at) {
			got = append(got, a.Annotations.Get("summary"))
		}
		if slices.Sort(got); !slices.Equal(got, u.fires) {
			t.Errorf("%s: fires %q, not %q", u.alert, got, u.fires)
		}
	}
	for name := range byName {
		if !shown[name] {
			t.Errorf("%s was never seen to fire", name)
		}
	}
}

// Each alert has a page that shows its expression, and each page is of an alert.
func TestEachAlertHasItsRunbook(t *testing.T) {
	pages, index := map[string]bool{"README.md": true}, string(read(t, "docs/runbooks/README.md"))
	for _, r := range alertRules(t) {
		name := r.Annotations["runbook"]
		if !strings.HasPrefix(name, "docs/runbooks/") || r.Labels["severity"] != "warning" && r.Labels["severity"] != "critical" {
			t.Errorf("%s: runbook %q, severity %q", r.Alert, name, r.Labels["severity"])
			continue
		}
		page, base := string(read(t, name)), filepath.Base(name)
		pages[base] = true
		for _, want := range []string{"# " + r.Alert + "\n", "    " + r.Expr + "\n", "Severity: " + r.Labels["severity"] + "."} {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not contain %q", name, want)
			}
		}
		if after := fmt.Sprintf("after %v when", r.For); r.For > 0 && !strings.Contains(page, after) {
			t.Errorf("%s does not contain %q", name, after)
		}
		if !strings.Contains(index, "("+base+")") {
			t.Errorf("docs/runbooks/README.md does not name %s", base)
		}
	}
	found, err := os.ReadDir(filepath.Join(root, "docs/runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if !pages[f.Name()] {
			t.Errorf("docs/runbooks/%s is of no alert", f.Name())
		}
	}
}
