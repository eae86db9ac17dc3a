package main

import (
	"testing"
	"time"
)

// TestABackupUnderFaultsIsRestored (S-361, S-362, S-364): backups are taken under load while a leader is killed, while it is paused, and
// while leaders move. Each is restored into a cluster of another size, and has what clients had been promised.
func TestABackupUnderFaultsIsRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("two minutes of real processes")
	}
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed: bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: testNetwork(), nodes: 3},
		schedule: schedule{calm: 2 * time.Second,
			hold: [2]time.Duration{3 * time.Second, 5 * time.Second},
			rest: [2]time.Duration{time.Second, 2 * time.Second},
			exactly: []combination{{"restore elsewhere"}, {"restore elsewhere", "kill the busiest"}, {"kill", "restore elsewhere"},
				{"pause the busiest", "restore elsewhere"}, {"move leaders", "restore elsewhere"}}}}
	o := judged(t, cfg)
	busy(t, o)
	if made, _ := o.schedule.biting(); o.world.bed.restored < made["restore elsewhere"] {
		t.Errorf("of %d backups %d were restored", made["restore elsewhere"], o.world.bed.restored)
	}
	for _, f := range o.schedule.failures {
		t.Error(f)
	}
}
