package languages

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// TestOrderWhileLeadersDie runs the scenarios of order in sessions on three nodes whose leaders are
// killed meanwhile. S-56, S-58, S-295; RUL-28.
func TestOrderWhileLeadersDie(t *testing.T) {
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
			t.Run(l.name()+"/"+id, func(t *testing.T) { l.orderWhileLeadersDie(t, id) })
		}
	}
}

func (l library) orderWhileLeadersDie(t *testing.T, id string) {
	wires := l.chosen()
	b := l.start(t, 3, wires)
	env := append(b.environment(wires[0]), "BUSBAR_ONLY="+id, "BUSBAR_MESSAGES="+strconv.Itoa(*messages),
		fmt.Sprintf("BUSBAR_LIMIT=%d", int(orderLimit.Seconds())))
	type said struct {
		kills int
		err   error
	}
	over, killed := make(chan struct{}), make(chan said, 1)
	go func() {
		n, err := b.cluster.KillLeaders("-"+id+"-", orderLife, over)
		killed <- said{n, err}
	}()
	began := time.Now()
	rep, beside, failed := l.say(t, env, l.version.Version, l.client)
	close(over)
	k := <-killed
	if k.err != nil {
		t.Fatal(k.err)
	}
	if failed != nil || !rep.Ended {
		t.Errorf("the runner did not come to its end: %v\n%s", failed, tail(beside, 4000))
	}
	if o, ok := rep.Outcomes[id]; !ok || o.State != "pass" {
		t.Errorf("%s: %s, after %s: %s\n%s", id, o.State, o.Took, o.Text, strings.Join(rep.Notes, "\n"))
	}
	if k.kills == 0 {
		t.Error("no leader was killed")
	}
	t.Logf("%d messages in %s, %d leaders killed", *messages, time.Since(began).Round(time.Second), k.kills)
}
