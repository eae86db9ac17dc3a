package acted

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

var long = flag.Bool("long", false, "play everything, which takes the better part of an hour")

const (
	chart = "../../../scripts/kubernetes/chart"
	// certified has the chart make the certificate, whose names the play takes. It is the one value that the play gives.
	certified = "tls: {certManager: {enabled: true, issuerRef: {name: play}}}\n"
	// rolloutLimit bounds one wait for pods; on a busy machine a start takes a while.
	rolloutLimit = 5 * time.Minute
)

// TestMain moves the tests into namespaces of their own.
func TestMain(m *testing.M) {
	flag.Parse()
	switch err := Missing(); {
	case Inside():
		if err := Furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "namespaces:", err)
			os.Exit(1)
		}
	case err != nil:
		fmt.Fprintf(os.Stderr, "SKIPPED: Kubernetes was not acted out: %v\n", err)
	default:
		if *long { // inside is no network to install anything from
			if _, err := installForeign(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, "libraries:", err)
				os.Exit(1)
			}
		}
		os.Exit(MoveInside())
	}
	os.Exit(m.Run())
}

// render renders the chart with values, which are YAML.
func render(t *testing.T, values string) *manifests.Set {
	t.Helper()
	set, err := manifests.Render(chart, "busbar", space, certified+values)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// play begins a cluster for a set and waits until its pods are available.
func play(t *testing.T, set *manifests.Set, machines int) *Kube {
	t.Helper()
	return playAs(t, set, machines, nil)
}

// playAs is play with other programs in some images.
func playAs(t *testing.T, set *manifests.Set, machines int, images map[string]string) *Kube {
	t.Helper()
	if !Inside() {
		t.Skip("no namespaces: ", Missing())
	}
	binary, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	lag := time.Second
	if *long {
		lag = 30 * time.Second // CoreDNS keeps an answer for that long
	}
	k, err := New(Options{Binary: binary, Images: images, Dir: t.TempDir(), Machines: machines, RulesLag: time.Second, NamesLag: lag, Log: t.Logf}, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(k.Logs(4000))
		}
	})
	within(t, "the first pods", func(ctx context.Context) error { return k.AwaitReady(ctx, int(*set.Stateful.Spec.Replicas)) })
	return k
}

// within calls a wait with the limit of a rollout.
func within(t *testing.T, what string, wait func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rolloutLimit)
	defer cancel()
	if err := wait(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// load starts the clients of the Go SDK; the function that it returns ends them and fails the test for everything that they
// saw. The queues have duplicate detection if pods will be killed.
func load(t *testing.T, k *Kube, killed bool) (finish func()) {
	t.Helper()
	return loadOf(t, k, killed, nil)
}

// loadOf is load with the clients of other languages beside.
func loadOf(t *testing.T, k *Kube, killed bool, libraries map[string]string) (finish func()) {
	t.Helper()
	var l *Load
	within(t, "the load", func(ctx context.Context) (err error) {
		l, err = k.StartLoad(ctx, killed, libraries)
		return err
	})
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), rolloutLimit)
		defer cancel()
		for _, fault := range l.Finish(ctx) {
			t.Error(fault)
		}
		sent, doubt, completed := l.Ledger.Tally()
		t.Logf("%d messages were acknowledged, %d were in doubt, %d were completed: %s", sent, doubt, completed, l.Counts())
		if sent < 500 {
			t.Errorf("only %d messages were sent", sent)
		}
		if killed := k.Killed(); len(killed) > 0 {
			t.Errorf("the grace period was not enough for %v", killed)
		}
	}
}

// another is a set with another template, as kubectl rollout restart makes one.
func another(t *testing.T, values string, partition int32) *manifests.Set {
	t.Helper()
	set := render(t, values)
	set.Stateful.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339Nano)
	set.Stateful.Spec.UpdateStrategy.RollingUpdate = rollFrom(partition)
	return set
}

// TestRollingUpdateAndLostPod is the short form of everything here: the rollout of one pod, and a pod that is lost. It does
// not wait until the new pods have been ready for long enough.
func TestRollingUpdateAndLostPod(t *testing.T) {
	set := render(t, "")
	replicas := int(*set.Stateful.Spec.Replicas)
	k := play(t, set, replicas)
	finish := load(t, k, true)
	k.Apply(another(t, "", int32(replicas-1)))
	within(t, "the end of the old pod", func(ctx context.Context) error { return k.awaitRevision(ctx, "busbar-2", 2) })
	within(t, "the rollout", func(ctx context.Context) error { return k.AwaitReady(ctx, replicas) })
	if err := k.Lose("busbar-0"); err != nil {
		t.Fatal(err)
	}
	within(t, "the new pod", func(ctx context.Context) error { return k.AwaitReady(ctx, replicas) })
	finish()
}

// rollFrom is a rolling update of the ordinals from partition on.
func rollFrom(partition int32) *apps.RollingUpdateStatefulSetStrategy {
	return &apps.RollingUpdateStatefulSetStrategy{Partition: &partition}
}
