package languages

import (
	"flag"
	"slices"
	"strconv"
	"testing"
	"time"
)

var (
	messages   = flag.Int("messages", 0, "how many messages TestOrderWhileLeadersDie sends with each library")
	orderLimit = flag.Duration("order-limit", 50*time.Minute, "how long it may take with each")
)

// orderLife is how long the three nodes live together between two kills: longer than these libraries need
// to connect again, so that messages come meanwhile.
const orderLife = 12 * time.Second

// TestOrderOnOneNode runs the scenarios of order in sessions on one node. S-56, S-58; RUL-28.
func TestOrderOnOneNode(t *testing.T) {
	inOrder(t, func(t *testing.T, l library, id string) {
		b := l.start(t, 1, l.chosen())
		l.alone(t, b, id, *orderLimit, ofOrder())
	})
}

// TestOrderWhileLeadersDie runs the scenarios of order in sessions on three nodes whose leaders are
// killed meanwhile. S-56, S-58, S-295; RUL-28.
func TestOrderWhileLeadersDie(t *testing.T) {
	inOrder(t, func(t *testing.T, l library, id string) {
		l.whileLeadersDie(t, id, "-"+id+"-", orderLife, *orderLimit, ofOrder())
	})
}

// ofOrder tells a runner how many messages to send.
func ofOrder() string { return "BUSBAR_MESSAGES=" + strconv.Itoa(*messages) }

// inOrder runs f for each scenario of order in sessions that a library has.
func inOrder(t *testing.T, f func(t *testing.T, l library, id string)) {
	t.Helper()
	if *messages == 0 {
		t.Skip("runs in make nightly: -args -messages=100000")
	}
	for _, l := range wanted(t) {
		install(t, l.version)
		// The Go SDK has a test of its own in the package above.
		for _, id := range []string{"session-order", "process-session-order"} {
			if l.version.Runner == "go" || !slices.Contains(l.ids(t), id) || l.absent[id] != "" {
				continue
			}
			t.Run(l.name()+"/"+id, func(t *testing.T) { f(t, l, id) })
		}
	}
}
