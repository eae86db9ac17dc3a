package simulation

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cluster/simnet"
)

var (
	seedFlag    = flag.Uint64("seed", 1, "the seed of TestSeed")
	minutesFlag = flag.Int("minutes", 2, "virtual minutes under faults")
	logsFlag    = flag.Bool("logs", false, "write the nodes' logs")
)

func TestSeed(t *testing.T) {
	dir := t.TempDir()
	began := time.Now()
	simnet.Test(t, func(t *testing.T) {
		cfg := configOf(*seedFlag, *minutesFlag)
		cfg.Dir, cfg.Log, cfg.Verbose = dir, os.Stdout, *logsFlag
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Violations {
			t.Error(v)
		}
		t.Logf("%d operations in %v: %v", len(r.History.Ops), r.Virtual, r.counters)
	})
	t.Log(time.Since(began))
}
