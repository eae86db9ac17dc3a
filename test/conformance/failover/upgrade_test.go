package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

var upgrade = flag.Bool("upgrade", false, "exchange the program of a cluster under load; takes minutes")

// upgradeLimit is long: a program is built, and each of nine exchanges waits for a node that starts.
const upgradeLimit = 12 * time.Minute

// TestAClusterIsUpgradedAndGoesBack (S-54, S-294, S-297): under load the nodes of a cluster get this program in the place of
// an earlier one, go back, and get it again, while leaders are killed. The upgrade is finalized then, and the
// earlier program is refused. No client of a living node sees an error, and no message is lost, doubled or out of order.
// The short form has one earlier program, one way back, and kills nobody.
func TestAClusterIsUpgradedAndGoesBack(t *testing.T) {
	if !*upgrade && !testing.Short() {
		t.Skip("only with -args -upgrade, and in the short form")
	}
	t.Setenv("BUSBAR_FINALIZE_UPGRADES", "false") // an environment variable: the earlier program may not know the flag
	for _, old := range earlierPrograms(t) {
		t.Run(old.Name, func(t *testing.T) { upgradeFrom(t, old) })
	}
}

func upgradeFrom(t *testing.T, old cluster.Program) {
	ctx, cancel := context.WithTimeout(t.Context(), upgradeLimit)
	defer cancel()
	this, err := cluster.Binary()
	fatal(t, "binary", err)
	dir := t.TempDir()
	c, err := cluster.StartAs(ctx, dir, nodes, cluster.Membership{Program: []string{old.Path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := begin(ctx, t, c, 2)
	before := l.thereAndBack(ctx, t, old.Path, this)
	l.finalize(ctx, t, this)
	after := l.upgradeStatus(ctx, t)
	if after.Version != after.Knows || after.Next != "" {
		t.Errorf("after the end of the upgrade the cluster version is %s, and %s is known", after.Version, after.Knows)
	}
	if !testing.Short() {
		killBusiest(ctx, t, l, 3)
	}
	if after.Version != before.Version {
		l.refuseEarlier(ctx, t, old, this, dir)
	}
	t.Logf("from %s, %s to %s", old.Name, before.Version, after.Version)
	l.end(ctx, t, 100)
}

// thereAndBack leaves all nodes with this program, and returns the state of the upgrade when they had it first.
func (l *load) thereAndBack(ctx context.Context, t *testing.T, old, this string) upgraded {
	t.Helper()
	if testing.Short() {
		l.exchange(ctx, t, this, 0, 1)
		l.exchange(ctx, t, old, 1)
		l.exchange(ctx, t, this, 1, 2)
		return l.upgradeStatus(ctx, t)
	}
	l.exchange(ctx, t, this, 0)
	killBusiest(ctx, t, l, 0) // two programs in one cluster
	l.exchange(ctx, t, this, 1, 2)
	before := l.upgradeStatus(ctx, t)
	killBusiest(ctx, t, l, 1)
	l.exchange(ctx, t, old, 2)
	killBusiest(ctx, t, l, 2)
	l.exchange(ctx, t, old, 1, 0)
	sleep(ctx, 2*time.Second)
	l.exchange(ctx, t, this, 0, 1, 2)
	if again := l.upgradeStatus(ctx, t); again.Version != before.Version || again.Next != before.Next {
		t.Errorf("cluster version %s, next %s, and before the way back %s, %s", again.Version, again.Next, before.Version, before.Next)
	}
	return before
}

// exchange stops nodes in good order, one after the other, and starts each with a program.
func (l *load) exchange(ctx context.Context, t *testing.T, program string, at ...int) {
	t.Helper()
	for _, i := range at {
		n := l.cluster.Nodes[i]
		began := time.Now()
		l.down[i].Store(true)
		l.deaths[i].Add(1)
		n.Stop()
		n.Program(program)
		fatal(t, "start "+n.ID, n.Start())
		fatal(t, "ready "+n.ID, n.WaitReady(ctx))
		l.down[i].Store(false)
		t.Logf("%s runs %s after %s", n.ID, filepath.Base(filepath.Dir(program)), time.Since(began).Round(time.Millisecond))
		sleep(ctx, time.Second)
	}
}

// upgraded is what the operations port says of an upgrade.
type upgraded struct{ Version, Knows, Next, Waits string }

// upgradeStatus asks until every node answers that one.
func (l *load) upgradeStatus(ctx context.Context, t *testing.T) (u upgraded) {
	t.Helper()
	for {
		body, err := l.cluster.Nodes[0].Get(ctx, "/api/cluster/upgrade")
		fatal(t, "state of the upgrade", err)
		fatal(t, "state of the upgrade", json.Unmarshal(body, &u))
		if u.Waits == "" || ctx.Err() != nil {
			return u
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// finalize ends the upgrade by the command line.
func (l *load) finalize(ctx context.Context, t *testing.T, this string) {
	t.Helper()
	_, ops := l.cluster.Nodes[1].Doors()
	out, err := exec.CommandContext(ctx, this, "cluster", "upgrade", "finalize", "--ops", ops).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("nothing is to be finalized")) {
		t.Fatalf("finalize: %v: %s", err, out)
	}
}

// refuseEarlier checks that an earlier program starts on no directory of the cluster, and that no node takes one that
// comes with a directory of its own.
func (l *load) refuseEarlier(ctx context.Context, t *testing.T, old cluster.Program, this, dir string) {
	t.Helper()
	n := l.cluster.Nodes[2]
	l.down[2].Store(true)
	l.deaths[2].Add(1)
	n.Stop()
	n.Program(old.Path)
	fatal(t, "start", n.Start())
	select {
	case <-n.Done():
	case <-time.After(cluster.ReadyLimit):
		t.Errorf("%s runs on a directory that is finalized", old.Name)
		n.Kill()
	}
	if log := n.Log(1500); !strings.Contains(log, "cluster: disk has") && !strings.Contains(log, "start release") {
		t.Errorf("%s does not say why it ended:\n%s", old.Name, log)
	}
	n.Program(this)
	fatal(t, "start with this program again", n.Start())
	fatal(t, "ready", n.WaitReady(ctx))
	l.down[2].Store(false)

	late := &cluster.Node{ID: "n9", Dir: filepath.Join(dir, "n9"), CA: n.CA}
	fatal(t, "ports", cluster.OnLoopback([]*cluster.Node{late}, cluster.Membership{}))
	late.Member(cluster.Membership{Program: []string{old.Path}, Size: nodes, Advertise: "127.0.0.1",
		Join: []string{l.cluster.Nodes[0].Gossip, l.cluster.Nodes[1].Gossip}})
	fatal(t, "start the late one", late.Start())
	t.Cleanup(late.Kill)
	const reason = "the programs do not fit"
	for began := time.Now(); time.Since(began) < cluster.ReadyLimit; {
		here := false
		for _, n := range l.cluster.Nodes {
			here = here || strings.Contains(n.Log(1<<20), reason)
		}
		if here && strings.Contains(late.Log(1<<20), reason) {
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
	t.Errorf("the logs of the two do not say %q; the late one printed:\n%s", reason, late.Log(3000))
}

// earlierPrograms builds the commit of main before this one, and in the long form the last tag before it, too.
func earlierPrograms(t *testing.T) (all []cluster.Program) {
	t.Helper()
	dir := t.TempDir()
	previous, err := cluster.PreviousProgram(dir, t.Logf)
	if err == nil {
		all = append(all, previous)
	} else {
		t.Logf("SKIPPED: %v", err)
	}
	if testing.Short() {
		return all
	}
	tagged, err := cluster.TaggedProgram(dir, t.Logf)
	if err == nil {
		all = append(all, tagged)
	} else {
		t.Log(err)
	}
	if len(all) == 0 {
		t.Skip("SKIPPED: no earlier program can be built, so nothing was upgraded")
	}
	return all
}
