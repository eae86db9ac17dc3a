package main

import (
	"regexp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/storage"
)

// release is the semantic version that the program is on the way to, or has. Its major and minor number are those of
// fsm.NewestVersion. docs/HACKING.md tells when it changes.
const release = "0.1.0-dev"

// version is set by the linker: the tag or commit that was built.
var version = "development"

// tag is the name that a tag of a release has: v1.2.3, or v1.2.3-rc.1. The name of a commit behind a tag does not match.
var tag = regexp.MustCompile(`^v(\d+\.\d+\.\d+(-[a-z]+\.\d+)?)$`)

// programVersion is the semantic version of the program: that of the tag it was built from, or else release with the
// commit behind it.
func programVersion() string {
	if found := tag.FindStringSubmatch(version); found != nil {
		return found[1]
	}
	if version == "v"+release {
		return release
	}
	return release + "+" + version
}

// storageConfig is the configuration of a data directory as this program opens it.
func storageConfig(path, log string) storage.Config {
	cfg := storage.Defaults()
	cfg.Dir, cfg.Log = path, log
	cfg.Hard = map[string]int{"hash": fsm.HashVersion, "entry": fsm.EntryVersion}
	cfg.FirstVersion, cfg.AdmitVersion = int(fsm.OldestVersion), admitDirectory
	return cfg
}

// admitDirectory refuses a data directory of a cluster version that this program does not know.
func admitDirectory(told int) error {
	return fsm.Version(told).Open(fsm.OldestVersion, fsm.NewestVersion, programVersion())
}

// versionMetrics are two gauges that differ until an upgrade is finalized.
func versionMetrics(n *node) []prometheus.Collector {
	gauge := func(name, help string, read func() fsm.Version) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
	}
	return []prometheus.Collector{
		gauge("busbar_cluster_version", "Cluster version that this node knows of: 101 is 0.1-1.", n.host.ClusterVersion),
		gauge("busbar_known_version", "Newest cluster version that this program knows.",
			func() fsm.Version { return fsm.NewestVersion }),
	}
}
