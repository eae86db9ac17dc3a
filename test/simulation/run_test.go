package simulation

import (
	"flag"
	"os"
	"testing"
	"time"
)

var (
	seedFlag    = flag.Uint64("seed", 1, "the seed of TestSeed")
	minutesFlag = flag.Int("minutes", 2, "virtual minutes under faults")
	logsFlag    = flag.Bool("logs", false, "write the nodes' logs")
	historyFlag = flag.String("history", "", "a file for the history")
)

func TestSeed(t *testing.T) {
	dir := t.TempDir()
	began := time.Now()
	left, err := bubble(t, func(t *testing.T) {
		cfg := configOf(*seedFlag, *minutesFlag)
		cfg.Dir, cfg.Log, cfg.Verbose = dir, os.Stdout, *logsFlag
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if *historyFlag != "" {
			f, err := os.Create(*historyFlag)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := r.History.Write(f); err != nil {
				t.Fatal(err)
			}
		}
		for _, v := range r.Violations {
			t.Error(v)
		}
		t.Logf("%d operations in %v: %v", len(r.History.Ops), r.Virtual, r.counters)
	})
	if err != nil {
		t.Error(err)
	}
	t.Log(time.Since(began), left, "futures forgotten")
}
