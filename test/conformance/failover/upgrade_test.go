package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
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
func TestAClusterIsUpgradedAndGoesBack(t *testing.T) {
	if !*upgrade {
		t.Skip("only with -args -upgrade")
	}
	t.Setenv("BUSBAR_FINALIZE_UPGRADES", "false") // an environment variable: the earlier program may not know the flag
	for _, old := range earlierPrograms(t) {
		t.Run(old.name, func(t *testing.T) { upgradeFrom(t, old) })
	}
}

func upgradeFrom(t *testing.T, old program) {
	ctx, cancel := context.WithTimeout(t.Context(), upgradeLimit)
	defer cancel()
	this, err := cluster.Binary()
	fatal(t, "binary", err)
	dir := t.TempDir()
	c, err := cluster.StartAs(ctx, dir, nodes, cluster.Membership{Program: []string{old.path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	over, finish := context.WithCancel(ctx)
	defer finish()
	l := begin(ctx, over, t, c, 2)
	l.exchange(ctx, t, this, 0)
	killBusiest(ctx, t, l, 0) // two programs in one cluster
	l.exchange(ctx, t, this, 1, 2)
	before := l.upgradeStatus(ctx, t)
	killBusiest(ctx, t, l, 1)
	l.exchange(ctx, t, old.path, 2)
	killBusiest(ctx, t, l, 2)
	l.exchange(ctx, t, old.path, 1, 0)
	sleep(ctx, 2*time.Second)
	l.exchange(ctx, t, this, 0, 1, 2)
	if again := l.upgradeStatus(ctx, t); again.Version != before.Version || again.Next != before.Next {
		t.Errorf("cluster version %s, next %s, and before the way back %s, %s", again.Version, again.Next, before.Version, before.Next)
	}
	l.finalize(ctx, t, this)
	after := l.upgradeStatus(ctx, t)
	if after.Version != after.Knows || after.Next != "" {
		t.Errorf("after the end of the upgrade the cluster version is %s, and %s is known", after.Version, after.Knows)
	}
	killBusiest(ctx, t, l, 3)
	if after.Version != before.Version {
		l.refuseEarlier(ctx, t, old, this, dir)
	}
	close(l.stop)
	l.makers.Wait()
	drain(ctx, t, l)
	finish()
	l.wg.Wait()
	for _, fault := range l.ledger.Judge(map[string]bool{ordered: true}) {
		t.Error(fault)
	}
	sent, doubt, completed := l.ledger.Tally()
	t.Logf("from %s, %s to %s: %d acknowledged, %d in doubt, %d completed, 4 leaders killed", old.name, before.Version, after.Version,
		sent, doubt, completed)
	if sent < 400 {
		t.Errorf("only %d messages were acknowledged: that was no load", sent)
	}
	if t.Failed() {
		for _, n := range c.Nodes {
			t.Logf("%s printed at last:\n%s", n.ID, n.Log(3000))
		}
	}
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
func (l *load) refuseEarlier(ctx context.Context, t *testing.T, old program, this, dir string) {
	t.Helper()
	n := l.cluster.Nodes[2]
	l.down[2].Store(true)
	l.deaths[2].Add(1)
	n.Stop()
	n.Program(old.path)
	fatal(t, "start", n.Start())
	select {
	case <-n.Done():
	case <-time.After(cluster.ReadyLimit):
		t.Errorf("%s runs on a directory that is finalized", old.name)
		n.Kill()
	}
	if log := n.Log(1500); !strings.Contains(log, "cluster: disk has") && !strings.Contains(log, "start release") {
		t.Errorf("%s does not say why it ended:\n%s", old.name, log)
	}
	n.Program(this)
	fatal(t, "start with this program again", n.Start())
	fatal(t, "ready", n.WaitReady(ctx))
	l.down[2].Store(false)

	late := &cluster.Node{ID: "n9", Dir: filepath.Join(dir, "n9"), CA: n.CA}
	fatal(t, "ports", cluster.OnLoopback([]*cluster.Node{late}, cluster.Membership{}))
	late.Member(cluster.Membership{Program: []string{old.path}, Size: nodes, Advertise: "127.0.0.1",
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

// program is a binary of an earlier state of the repository.
type program struct{ name, path string }

// earlierPrograms builds the commit of main before this one, and the last tag before it, from the history of git.
func earlierPrograms(t *testing.T) (all []program) {
	t.Helper()
	root := filepath.Dir(filepath.Dir(must(t, cluster.Binary)))
	if top, err := git(root, "rev-parse", "--show-toplevel"); err == nil {
		root = top
	}
	commits := map[string]string{}
	if commit, err := previousCommit(root); err == nil {
		commits["the commit before"] = commit
	} else {
		t.Logf("SKIPPED: no earlier commit is at hand, as in a shallow clone: %v", err)
	}
	if tag, err := git(root, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD~1"); err == nil {
		commits["the release "+tag] = tag
	} else {
		t.Logf("no release has been tagged: %v", err)
	}
	if len(commits) == 0 {
		t.Skip("SKIPPED: no earlier program can be built, so nothing was upgraded")
	}
	for name, commit := range commits {
		all = append(all, program{name, build(t, root, commit)})
	}
	return all
}

func must(t *testing.T, f func() (string, error)) string {
	t.Helper()
	text, err := f()
	fatal(t, "binary", err)
	return text
}

// previousCommit returns the commit of main that a change starts from: where a branch left main, or the parent of
// main's last one if that is what is checked out.
func previousCommit(root string) (string, error) {
	head, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	for _, main := range []string{"main", "origin/main"} {
		if base, err := git(root, "merge-base", "HEAD", main); err == nil && base != head {
			return base, nil
		}
	}
	return git(root, "rev-parse", "--verify", "HEAD~1^{commit}")
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(complaint.Bytes()))
	}
	return string(bytes.TrimSpace(out)), nil
}

// build builds the program of a commit in a directory of its own and returns its path.
func build(t *testing.T, root, commit string) string {
	t.Helper()
	began, dir := time.Now(), filepath.Join(t.TempDir(), commit[:min(12, len(commit))])
	fatal(t, "directory", os.MkdirAll(dir, 0o755))
	archive := exec.Command("git", "-C", root, "archive", commit)
	unpack := exec.Command("tar", "-x", "-C", dir)
	var err error
	unpack.Stdin, err = archive.StdoutPipe()
	fatal(t, "pipe", err)
	fatal(t, "unpack", unpack.Start())
	fatal(t, "git archive "+commit, errors.Join(archive.Run(), unpack.Wait()))
	bin := filepath.Join(dir, "busbar")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+commit, "-o", bin, "./cmd/busbar")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	t.Logf("built %s in %s", commit, time.Since(began).Round(time.Millisecond))
	return bin
}
