package acted

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// whole skips a test unless the long form is asked for.
func whole(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("plays for minutes: go test ./kubernetes/acted -args -long")
	}
}

// settled waits until all pods are available and all partitions have their replicas again.
func settled(t *testing.T, k *Kube) {
	t.Helper()
	within(t, "the rollout", k.AwaitRollout)
	within(t, "the replicas", func(ctx context.Context) error { return k.AwaitWhole(ctx, 3) })
}

// TestRollingUpdate brings a new template to all pods, one after the other.
func TestRollingUpdate(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 3)
	finish := load(t, k, false)
	settled(t, k)
	k.Apply(another(t, "", 0))
	settled(t, k)
	finish()
}

// TestRollingUpdateWithoutPause is a rollout that goes on as soon as a pod is ready, as Kubernetes may do before it
// counted minReadySeconds in a rollout.
func TestRollingUpdateWithoutPause(t *testing.T) {
	whole(t)
	const values = "minReadySeconds: 0\n"
	k := play(t, render(t, values), 3)
	finish := load(t, k, false)
	settled(t, k)
	k.Apply(another(t, values, 0))
	settled(t, k)
	finish()
}

// TestDrainOfEachMachine drains one machine after the other, with a spare one to go to.
func TestDrainOfEachMachine(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 4)
	finish := load(t, k, false)
	settled(t, k)
	for _, m := range []string{"machine-0", "machine-1", "machine-2"} {
		within(t, "the drain", func(ctx context.Context) error {
			_, err := k.Drain(ctx, m)
			return err
		})
		k.Uncordon(m)
	}
	settled(t, k)
	finish()
}

// TestDrainsAtOnce drains two machines at once: the disruption budget lets one pod go after the other has come back.
func TestDrainsAtOnce(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 5)
	finish := load(t, k, false)
	settled(t, k)
	refused, errs := make(chan int, 2), make(chan error, 2)
	for _, m := range []string{"machine-0", "machine-1"} {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), rolloutLimit)
			defer cancel()
			n, err := k.Drain(ctx, m)
			refused <- n
			errs <- err
		}()
	}
	if n := <-refused + <-refused; n == 0 {
		t.Error("the budget refused no eviction")
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	settled(t, k)
	finish()
}

// TestNewDisk deletes each pod with its volume, one after the other.
func TestNewDisk(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 3)
	finish := load(t, k, false)
	settled(t, k)
	for _, name := range []string{"busbar-2", "busbar-1", "busbar-0"} {
		if err := k.ReplaceDisk(name); err != nil {
			t.Fatal(err)
		}
		settled(t, k)
	}
	finish()
}

// operate runs a command in pod busbar-0 that needs a token.
func operate(t *testing.T, k *Kube, command ...string) string {
	t.Helper()
	var out string
	within(t, strings.Join(command, " "), func(ctx context.Context) (err error) {
		out, err = k.Exec(ctx, "busbar-0", []string{"SERVICEBUS_CONNECTION_STRING=" + k.ConnectionString()}, command...)
		k.say("%q: %v\n%s", command, err, out)
		return err
	})
	return out
}

// TestScale goes from three pods to five and back, twice: the nodes are removed before their pods go, and their volumes are
// deleted before the pods come again.
func TestScale(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 5)
	finish := load(t, k, false)
	settled(t, k)
	for range 2 {
		k.Apply(render(t, "replicas: 5\n"))
		settled(t, k)
		for _, name := range []string{"busbar-4", "busbar-3"} {
			operate(t, k, "/busbar", "cluster", "remove", name)
		}
		k.Apply(render(t, "replicas: 3\n"))
		within(t, "the end of two pods", func(ctx context.Context) error { return k.awaitPods(ctx, 3) })
		settled(t, k)
		for _, name := range []string{"busbar-4", "busbar-3"} {
			if err := k.ForgetClaims(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	finish()
}

// TestCrashLoop damages the identity of one node, whose container then ends at each start. Meanwhile the budget lets no
// other pod go. A new volume mends it.
func TestCrashLoop(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 4)
	finish := load(t, k, true)
	settled(t, k)
	file := filepath.Join(k.claim("data", "busbar-1"), "identity.json")
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	if err := k.Lose("busbar-1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	within(t, "three restarts", func(ctx context.Context) error { return k.awaitRestarts(ctx, "busbar-1", 3) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*evictPause)
	defer cancel()
	if refused, err := k.Drain(ctx, "machine-0"); err == nil || refused < 2 {
		t.Errorf("the drain of another machine was refused %d times and ended with %v", refused, err)
	}
	k.Uncordon("machine-0")
	if err := k.ReplaceDisk("busbar-1"); err != nil {
		t.Fatal(err)
	}
	settled(t, k)
	finish()
}

// TestBadTemplate rolls a template out with which no container lives. The rollout stops at its first pod, and the template
// before it brings that pod back.
func TestBadTemplate(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 3)
	finish := load(t, k, false)
	settled(t, k)
	bad := another(t, "", 0)
	bad.Pod().Containers[0].Args = append(bad.Pod().Containers[0].Args, "--no-such-flag")
	k.Apply(bad)
	within(t, "two restarts", func(ctx context.Context) error { return k.awaitRestarts(ctx, "busbar-2", 2) })
	if n := len(k.readyPods()); n != 2 {
		t.Errorf("%d pods are ready, want two", n)
	}
	k.Apply(render(t, ""))
	settled(t, k)
	finish()
}

// TestKillsAreNoticed is the canary of the load: pods are killed behind its back, and it must tell of failed operations.
func TestKillsAreNoticed(t *testing.T) {
	whole(t)
	k := play(t, render(t, ""), 3)
	var l *Load
	within(t, "the load", func(ctx context.Context) (err error) {
		l, err = k.StartLoad(ctx, true, nil)
		return err
	})
	for i := range 6 {
		p, err := k.pod([]string{"busbar-0", "busbar-1", "busbar-2"}[i%3])
		if err != nil {
			t.Fatal(err)
		}
		p.delete(0)
		<-p.gone
		within(t, "the new pod", func(ctx context.Context) error { return k.AwaitReady(ctx, 3) })
	}
	within(t, "the end", func(ctx context.Context) error {
		if faults := l.Finish(ctx); len(faults) == 0 {
			t.Errorf("six pods were killed, and no operation failed: %s", l.Counts())
		}
		return nil
	})
}
