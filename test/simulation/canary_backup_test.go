package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/check"
)

// A backup whose partitions hold no forwards loses what is on its way meanwhile, and that is told. A backup with a hold is
// found innocent.
func TestCanaryOfBackups(t *testing.T) {
	for _, free := range []bool{true, false} {
		r := canary(t, func(c *Config) {
			c.faults, c.FaultTime, c.NoHold, c.Delay = only("backup"), time.Second, free, 100*time.Millisecond
		})
		lost := slices.ContainsFunc(r.Violations, func(v check.Violation) bool {
			return v.Invariant == "I32" && strings.Contains(v.Text, "missing")
		})
		if lost != free || !free && len(r.Violations) > 0 || r.Coverage[backupsTaken] == 0 {
			t.Errorf("without a hold %v: %d backups, %v", free, r.Coverage[backupsTaken], r.Violations)
		}
	}
}
