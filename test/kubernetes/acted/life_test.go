package acted

import (
	"context"
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// TestALife is what an operator does with a cluster in its life, while clients of four languages work through the Service
// with the retries of their libraries. It is upgraded from the commit before and the upgrade is finalized, it grows from
// three nodes to five, two disks are replaced, each node is drained, all are restarted, and it shrinks to three.
// No operation fails, and no message is lost, doubled or out of its session's order.
func TestALife(t *testing.T) {
	whole(t)
	libraries, err := installForeign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const first = "image: {tag: earlier}\n"
	images := map[string]string{}
	if earlier, err := cluster.PreviousProgram(t.TempDir(), t.Logf); err == nil {
		images[render(t, first).Pod().Containers[0].Image] = earlier.Path
	} else {
		t.Logf("SKIPPED: the program before the upgrade is this one: %v", err)
	}
	k := playAs(t, render(t, first), 6, images)
	finish := loadOf(t, k, false, libraries)
	step := func(format string, args ...any) { k.say("==== "+format, args...) } // for the reader of the log
	settled(t, k)

	step("all pods get this program")
	k.Apply(render(t, ""))
	settled(t, k)
	operate(t, k, "/busbar", "cluster", "upgrade", "finalize")
	step("five pods")
	k.Apply(render(t, "replicas: 5\n"))
	settled(t, k)
	for _, name := range []string{"busbar-1", "busbar-4"} {
		step("%s gets a new disk", name)
		if err := k.ReplaceDisk(name); err != nil {
			t.Fatal(err)
		}
		settled(t, k)
	}
	for i := range 5 {
		name := fmt.Sprintf("busbar-%d", i)
		step("%s is drained", name)
		operate(t, k, "/busbar", "cluster", "drain", name)
		operate(t, k, "/busbar", "cluster", "undrain", name)
	}
	settled(t, k)
	step("all pods are restarted")
	k.Apply(another(t, "replicas: 5\n", 0))
	settled(t, k)
	step("three pods")
	for _, name := range []string{"busbar-4", "busbar-3"} {
		operate(t, k, "/busbar", "cluster", "remove", name)
	}
	three := another(t, "replicas: 3\n", 0)
	three.Stateful.Spec.Template = k.set.Stateful.Spec.Template
	k.Apply(three)
	within(t, "the end of two pods", func(ctx context.Context) error { return k.awaitPods(ctx, 3) })
	settled(t, k)
	finish()
}
