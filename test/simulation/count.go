package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/busbar-mq/busbar/test/check"
)

// counters count what a run exercised. A run that did not exercise its share proves nothing.
type counters struct {
	mu sync.Mutex
	m  map[string]int
}

func newCounters() *counters { return &counters{m: map[string]int{}} }

func (c *counters) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[name] += n
}

// each calls f with every counter.
func (c *counters) each(f func(name string, n int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range c.m {
		f(name, n)
	}
}

// list writes counters by name, on one line.
func list(m map[string]int) string {
	names := slices.Sorted(maps.Keys(m))
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = fmt.Sprintf("%s=%d", n, m[n])
	}
	return strings.Join(parts, ", ")
}

// Names of counters that runs must reach.
const (
	faultsBegun    = "faults"
	powerLosses    = "power losses"
	statesRestored = "states restored"
	truncations    = "log truncations"
	takeOvers      = "sessions taken over"
	handedOver     = "handed over and settled"
	formersRefused = "settlements of former holders refused"

	backupsTaken     = "backups taken"
	messagesRestored = "messages restored"
	oldRefused       = "old programs refused"
	replicasDeleted  = "replicas deleted"
	disksLost        = "disks lost"
)

// enough says what a set of runs with faults, of so many virtual minutes together, did not exercise.
func enough(c map[string]int, minutes int) (missing []string) {
	for name, perHundred := range map[string]int{ // least per hundred virtual minutes
		faultsBegun: 200, check.Elections: 200, check.Deliveries: 10_000, check.Redeliveries: 500,
		check.Retries: 10, check.UnknownOutcome: 100, check.LocksLost: 100, check.DeadLettered: 300,
		check.Exceeded: 10, statesRestored: 20, powerLosses: 10, truncations: 1,
		takeOvers: 30, handedOver: 5, formersRefused: 2, replicasDeleted: 5, disksLost: 1, backupsTaken: 1,
	} {
		if c[name] < perHundred*minutes/100 {
			missing = append(missing, fmt.Sprintf("%s=%d", name, c[name]))
		}
	}
	const several = 500 // a third of the seeds have an upgrade
	if minutes >= several && c[oldRefused] == 0 {
		missing = append(missing, oldRefused+"=0")
	}
	slices.Sort(missing)
	return missing
}
