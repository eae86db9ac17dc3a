package failover

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

const (
	growLimit = 10 * time.Minute // long: replicas move one after the other
	// manyGroups is how many groups with messages the test has, fewGroups how many in its short form. Its nodes still get
	// and give a replica each. moreGroups are added at the end.
	manyGroups, fewGroups, moreGroups = 6, 2, 3
)

// TestT267NodesComeAndGo (S-315, S-318, S-320): two nodes join a cluster of three under load and get their share. One
// is drained and serves again, then both are removed. At last partitions are added. No client of the three sees an error,
// no message is lost or out of its session's order. A client of a node that stays holds messages and sessions all the time.
func TestT267NodesComeAndGo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), growLimit)
	defer cancel()
	groups := manyGroups
	if testing.Short() {
		groups = fewGroups
	}
	dir := t.TempDir()
	settings := filepath.Join(dir, "busbar.yaml")
	fatal(t, "settings", os.WriteFile(settings, fmt.Appendf(nil, "partitions: %d\n", groups), 0o600))
	c, err := cluster.Start(ctx, dir, nodes, "--config", settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := begin(ctx, t, c, 1)
	settle := l.holdOn(ctx, t)
	more := join(ctx, t, c, dir, "n4", "n5")
	l.level(ctx, t, "n1", "n2", "n3", "n4", "n5")
	l.tellZones(ctx, t, more)
	l.command(ctx, t, "drain", "n4")
	l.level(ctx, t, "n1", "n2", "n3", "n5")
	l.command(ctx, t, "undrain", "n4")
	l.level(ctx, t, "n1", "n2", "n3", "n4", "n5")
	for _, n := range more {
		l.command(ctx, t, "remove", n.ID)
		n.Stop()
	}
	l.level(ctx, t, "n1", "n2", "n3")
	l.morePartitions(ctx, t, settings, groups+moreGroups)
	settle()
	l.end(ctx, t, 100)
	if t.Failed() {
		for _, n := range more {
			t.Logf("%s printed at last:\n%s", n.ID, n.Log(3000))
		}
	}
}

// join starts further nodes of a cluster.
func join(ctx context.Context, t *testing.T, c *cluster.Cluster, dir string, names ...string) (more []*cluster.Node) {
	t.Helper()
	for _, name := range names {
		more = append(more, &cluster.Node{ID: name, Dir: filepath.Join(dir, name), CA: filepath.Join(dir, "tls", "ca.pem")})
	}
	fatal(t, "ports", cluster.OnLoopback(more, cluster.Membership{}))
	var gossip []string
	for _, n := range c.Nodes {
		gossip = append(gossip, n.Gossip)
	}
	for _, n := range more {
		n.Member(cluster.Membership{Size: nodes, Advertise: "127.0.0.1", Join: gossip, Extra: []string{"--zone", zoneOf(n.ID)}})
		fatal(t, "start "+n.ID, n.Start())
		t.Cleanup(n.Kill)
	}
	for _, n := range more {
		fatal(t, "ready "+n.ID, n.WaitReady(ctx))
	}
	return more
}

// zoneOf is the zone that a node that joins is started in, one of its own.
func zoneOf(id string) string { return "rack-" + id }

// tellZones fails the test unless the cluster tells the zones of nodes, in its status and in what the command prints.
func (l *load) tellZones(ctx context.Context, t *testing.T, nodes []*cluster.Node) {
	t.Helper()
	s, err := l.cluster.Status(ctx)
	fatal(t, "status", err)
	told := map[string]string{}
	for _, n := range s.Nodes {
		told[n.ID] = n.Zone
	}
	bin, err := cluster.Binary()
	fatal(t, "binary", err)
	_, ops := l.cluster.Nodes[0].Doors()
	table, err := exec.CommandContext(ctx, bin, "cluster", "status", "--ops", ops).CombinedOutput()
	fatal(t, "cluster status", err)
	for _, n := range nodes {
		if told[n.ID] != zoneOf(n.ID) || !strings.Contains(string(table), zoneOf(n.ID)) {
			t.Errorf("%s stands in %s, and the cluster tells %v and\n%s", n.ID, zoneOf(n.ID), told, table)
		}
	}
}

// command runs a verb for a node by the command line, which waits for its end.
func (l *load) command(ctx context.Context, t *testing.T, verb, name string) {
	t.Helper()
	bin, err := cluster.Binary()
	fatal(t, "binary", err)
	_, ops := l.cluster.Nodes[0].Doors()
	began := time.Now()
	out, err := exec.CommandContext(ctx, bin, "cluster", verb, name, "--ops", ops).CombinedOutput()
	t.Logf("%s %s took %s: %s", verb, name, time.Since(began).Round(time.Millisecond),
		strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "))
	fatal(t, verb+" "+name, err)
}

// morePartitions has the nodes read a higher number of partitions. A queue that is created then has a share in each, and
// one that was there keeps its shares.
func (l *load) morePartitions(ctx context.Context, t *testing.T, settings string, n int) {
	t.Helper()
	began := time.Now()
	before := l.shares(ctx, t, ordered)
	fatal(t, "settings", os.WriteFile(settings, fmt.Appendf(nil, "partitions: %d\n", n), 0o600))
	for _, node := range l.cluster.Nodes {
		fatal(t, "reload "+node.ID, node.Signal(syscall.SIGHUP))
	}
	for why := "not asked"; why != ""; sleep(ctx, 200*time.Millisecond) {
		s, err := l.cluster.Status(ctx)
		if ctx.Err() != nil {
			t.Fatalf("not %d partitions: %s", n, why)
		}
		switch {
		case err != nil:
			why = err.Error()
		case len(s.Partitions) != n+1:
			why = fmt.Sprintf("%d partitions with the catalog", len(s.Partitions))
		default:
			why = unlevel(s, []string{"n1", "n2", "n3"})
		}
	}
	createQueue(ctx, t, l.cluster.Nodes[1], "later", false, true)
	if got := l.shares(ctx, t, "later"); len(got) != n {
		t.Errorf("shares of a new queue: %v", got)
	}
	if got := l.shares(ctx, t, ordered); !slices.Equal(got, before) {
		t.Errorf("shares of the queue %s: %v, once %v", ordered, got, before)
	}
	t.Logf("%d partitions after %s", n, time.Since(began).Round(time.Millisecond))
}

// shares returns the partitions of an entity.
func (l *load) shares(ctx context.Context, t *testing.T, name string) []int {
	t.Helper()
	s, err := l.cluster.Status(ctx)
	fatal(t, "status", err)
	for _, e := range s.Entities {
		if e.Name == name {
			return e.Shares
		}
	}
	return nil
}

// level waits until the replicas of all data partitions are spread over nodes, and nothing moves.
func (l *load) level(ctx context.Context, t *testing.T, names ...string) {
	t.Helper()
	began, why := time.Now(), ""
	for ctx.Err() == nil {
		s, err := l.cluster.Status(ctx)
		if err == nil {
			if why = unlevel(s, names); why == "" {
				t.Logf("level over %v after %s", names, time.Since(began).Round(time.Millisecond))
				return
			}
		}
		sleep(ctx, 200*time.Millisecond)
	}
	t.Fatalf("replicas are not level over %v: %s", names, why)
}

func unlevel(s cluster.Status, names []string) string {
	count := map[string]int{}
	for _, p := range s.Partitions {
		if len(p.Differs) > 0 {
			return strings.Join(p.Differs, "; ")
		}
		if p.ID == 0 {
			continue
		}
		for _, n := range p.Replicas {
			count[n]++
		}
	}
	for name := range count {
		if !slices.Contains(names, name) {
			return fmt.Sprintf("%s has replicas: %v", name, count)
		}
	}
	for _, a := range names {
		for _, b := range names {
			if count[a] > count[b]+1 {
				return fmt.Sprint(count)
			}
		}
	}
	return ""
}
