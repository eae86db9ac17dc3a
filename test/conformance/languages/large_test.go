package languages

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	largeMB   = flag.Int("large", 0, "megabytes of the messages of TestLargeWhileLeadersDie; 100 is the limit")
	largeTime = flag.Duration("large-time", 30*time.Second, "how long it sends them with each library, at least")
)

const (
	largeID = "large-message"
	// largeLimit bounds the scenario, which goes on until its message is through.
	largeLimit = 10 * time.Minute
	// besideMB is the most that is sent with several libraries at a time: they send for a time, and not so many messages.
	besideMB = 5
)

// TestLargeWhileLeadersDie runs the scenario of large messages on three nodes whose leaders are killed
// meanwhile. RUL-25; S-226.
func TestLargeWhileLeadersDie(t *testing.T) {
	if *largeMB == 0 {
		t.Skip("runs in make conformance: -args -large=5")
	}
	for _, l := range wanted(t) {
		// The Go SDK has a test of its own in the package above.
		if l.version.Runner != "python" && l.version.Runner != "java" || l.absent[largeID] != "" {
			continue
		}
		install(t, l.version)
		t.Run(l.name(), l.largeWhileLeadersDie)
	}
}

func (l library) largeWhileLeadersDie(t *testing.T) {
	if *largeMB <= besideMB {
		t.Parallel() // each has nodes of its own
	}
	// All nodes live for longer between two kills than one step with the message takes.
	life := orderLife + time.Duration(*largeMB)*200*time.Millisecond
	// The last of its queues is the first of the way.
	l.whileLeadersDie(t, largeID, "-q3", life, largeLimit,
		"BUSBAR_LARGE="+strconv.Itoa(*largeMB), fmt.Sprintf("BUSBAR_LARGE_SECONDS=%d", int(largeTime.Seconds())))
}

// whileLeadersDie runs one scenario on three nodes. The leaders of the first queue whose name contains queue are
// killed meanwhile, with that life of all nodes between.
func (l library) whileLeadersDie(t *testing.T, id, queue string, life, limit time.Duration, variables ...string) {
	t.Helper()
	b := l.start(t, 3, l.chosen())
	type said struct {
		kills int
		err   error
	}
	over, killed := make(chan struct{}), make(chan said, 1)
	go func() {
		n, err := b.cluster.KillLeaders(queue, life, over)
		killed <- said{n, err}
	}()
	began := time.Now()
	l.alone(t, b, id, limit, variables...)
	close(over)
	k := <-killed
	if k.err != nil {
		t.Fatal(k.err)
	}
	if k.kills == 0 {
		t.Error("no leader was killed")
	}
	t.Logf("%s: %s, %d leaders killed", id, time.Since(began).Round(time.Second), k.kills)
}

// alone runs one scenario, which has to pass within the limit.
func (l library) alone(t *testing.T, b *bed, id string, limit time.Duration, variables ...string) {
	t.Helper()
	env := append(b.environment(l.chosen()[0]), "BUSBAR_ONLY="+id, fmt.Sprintf("BUSBAR_LIMIT=%d", int(limit.Seconds())))
	rep, beside, failed := l.say(t, limit+time.Minute, append(env, variables...), l.version.Version, l.client)
	if failed != nil || !rep.Ended {
		t.Errorf("the runner did not come to its end: %v\n%s", failed, tail(beside, 4000))
	}
	if o, ok := rep.Outcomes[id]; !ok || o.State != "pass" {
		t.Errorf("%s: %s, after %s: %s\n%s", id, o.State, o.Took, o.Text, strings.Join(rep.Notes, "\n"))
	}
}
