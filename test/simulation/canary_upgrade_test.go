package simulation

import (
	"maps"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// only returns the faults with these names.
func only(names ...string) []fault {
	return slices.DeleteFunc(faults(), func(f fault) bool { return !slices.Contains(names, f.name) })
}

// Programs that propose commands too early, and ones that say to know more than they do, are told. The cluster has an early
// version, and an operator asks for what came later.
func TestCanaryOfVersions(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(*Config)
		faults []fault
		guilty bool
	}{
		{"programs that take the cluster for newer than it is", func(c *Config) { c.Hasty = true },
			only("rehome", "exchange program"), true},
		{"programs that say to know more than they do", func(c *Config) { c.Liars = true }, only("rehome", "transfer"), true},
		{"programs that are what they say", func(*Config) {}, only("rehome", "exchange program", "transfer"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := canary(t, func(cfg *Config) {
				cfg.Begins, cfg.faults, cfg.Overlap = fsm.VersionPlacement, c.faults, 3
				c.edit(cfg)
			})
			if got := caught(r.Violations); slices.Contains(got, "I31") != c.guilty {
				t.Errorf("caught by %v: %v; %s", got, r.Violations, list(r.Coverage))
			}
		})
	}
}

// Each cluster version but the newest one is played by programs of the simulation.
func TestEachClusterVersionIsPlayed(t *testing.T) {
	known := map[fsm.Version]bool{fsm.NewestVersion: true}
	for _, v := range fsm.Commands() {
		known[v] = true
	}
	for _, v := range fsm.Changes() {
		known[v] = true
	}
	for _, c := range fsm.Calls() {
		known[c.Since] = true
	}
	for _, f := range fsm.Formats() {
		known[f.Since] = true
	}
	delete(known, fsm.VersionFirst) // programs of that day take no wishes
	if got, want := append(slices.Clone(plays), fsm.NewestVersion), slices.Sorted(maps.Keys(known)); !slices.Equal(got, want) {
		t.Errorf("played are %v, known are %v", got, want)
	}
}
