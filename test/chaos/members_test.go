package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// visitors is how long a change of members waits until it is complete.
const visitors = 3 * placeLimit

// TestNodesComeAndGoUnderFaults (S-318, S-319, S-320) changes the members of a cluster in every way while clients of the
// Go SDK work: two nodes join and a leader is killed meanwhile, one is drained, one is removed and comes back as a new
// node, one loses its disk, and the guests leave. Nothing is lost, doubled or out of order.
func TestNodesComeAndGoUnderFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes of real processes")
	}
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed:      bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: testNetwork(), nodes: 3},
		schedule: schedule{calm: 2 * time.Second}}
	cfg.schedule.instead = func(ctx context.Context, b *bed) error { return (&comeAndGo{t: t, b: b}).run(ctx) }
	o := judged(t, cfg)
	busy(t, o)
	for _, f := range o.schedule.failures {
		t.Error(f)
	}
}

// comeAndGo is one run of it.
type comeAndGo struct {
	t *testing.T
	b *bed
}

func (x *comeAndGo) run(ctx context.Context) error {
	b := x.b
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"n4 and n5 join, and the busiest node is killed", x.join},
		{"n1 is drained", x.drain},
		{"n2 is removed, and comes back empty", x.removeAndReturn},
		{"n3 loses its disk", x.loseDisk},
		{"n4 and n5 leave", func(ctx context.Context) error {
			for _, n := range b.guests {
				if err := b.dismiss(ctx, n); err != nil {
					return err
				}
			}
			return b.until(ctx, visitors, "three nodes hold everything", level("n1", "n2", "n3"))
		}},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		x.t.Logf("%s: %s", step.name, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

func (x *comeAndGo) join(ctx context.Context) error {
	for range 2 {
		if _, err := x.b.invite(); err != nil {
			return err
		}
	}
	if err := x.b.until(ctx, placeLimit, "n4 and n5 take their share", func(s cluster.Status) string {
		return holds("n4")(s) + holds("n5")(s)
	}); err != nil {
		return err
	}
	busiest := x.b.busiest(ctx)
	if err := busiest.end(syscall.SIGKILL, 10*time.Second); err != nil {
		return err
	}
	wait(ctx, 3*time.Second)
	if err := busiest.Start(); err != nil {
		return err
	}
	return x.b.until(ctx, visitors, "five nodes have their share", level("n1", "n2", "n3", "n4", "n5"))
}

func (x *comeAndGo) drain(ctx context.Context) error {
	n1 := x.b.nodes[0]
	if err := x.b.want(ctx, "drain", n1); err != nil {
		return err
	}
	err := errors.Join(x.b.until(ctx, leadLimit, "n1 leads nothing", leadsNothing("n1")),
		x.b.until(ctx, visitors, "n1 is empty", level("n2", "n3", "n4", "n5")))
	if err != nil {
		return err
	}
	if err := x.b.want(ctx, "undrain", n1); err != nil {
		return err
	}
	return x.b.until(ctx, visitors, "n1 has its share again", level("n1", "n2", "n3", "n4", "n5"))
}

// removeAndReturn removes a node that clients use. They go on with the others while it is away.
func (x *comeAndGo) removeAndReturn(ctx context.Context) error {
	n2 := x.b.nodes[1]
	if err := x.b.dismiss(ctx, n2); err != nil {
		return err
	}
	if err := x.b.until(ctx, visitors, "the others have all", level("n1", "n3", "n4", "n5")); err != nil {
		return err
	}
	if err := errors.Join(n2.wipe(), n2.Start()); err != nil {
		return err
	}
	return x.b.until(ctx, visitors, "n2 has its share again", level("n1", "n2", "n3", "n4", "n5"))
}

func (x *comeAndGo) loseDisk(ctx context.Context) error {
	n3 := x.b.nodes[2]
	was, err := x.b.identity(ctx, n3)
	if err != nil {
		return err
	}
	if err := n3.end(syscall.SIGKILL, 10*time.Second); err != nil {
		return err
	}
	if err := errors.Join(n3.wipe(), n3.Start()); err != nil {
		return err
	}
	if err := x.b.another(ctx, n3, was); err != nil {
		return err
	}
	return x.b.until(ctx, visitors, "n3 has its share again",
		replaced(n3.ID, was, level("n1", "n2", "n3", "n4", "n5")))
}

// TestProgramsAreExchangedUnderFaults (S-54): the nodes of a cluster begin with the program of the commit before. Each gets
// this program or the earlier one while other nodes are killed, paused and join. Then all get this program, and the upgrade
// is finalized. Nothing is lost, doubled or out of order.
func TestProgramsAreExchangedUnderFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes of real processes")
	}
	earlier, err := cluster.PreviousProgram(t.TempDir(), t.Logf)
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed: bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: testNetwork(), nodes: 3, earlier: earlier.Path},
		schedule: schedule{calm: time.Second, meet: true,
			hold: [2]time.Duration{3 * time.Second, 6 * time.Second},
			rest: [2]time.Duration{time.Second, 3 * time.Second},
			exactly: []combination{{"exchange the program", "kill"}, {"exchange the program"},
				{"exchange the program", "pause the busiest"}, {"exchange the program", "visit"},
				{"exchange the program", "kill the busiest"}, {finish}, {"kill the busiest"}}}}
	o := judged(t, cfg)
	busy(t, o)
	for _, x := range o.schedule.strikes {
		if x.bit != nil {
			t.Errorf("%s: %s: %v", x.name, x.what, x.bit)
		}
	}
	for _, f := range o.schedule.failures {
		t.Error(f)
	}
}
