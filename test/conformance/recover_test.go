package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// TestALostMajorityIsRecovered: two of three disks are gone for good. The third node says what it has and what may be lost,
// goes on alone with everything, and empty nodes in the place of the lost ones make the cluster whole.
func TestALostMajorityIsRecovered(t *testing.T) {
	c, err := cluster.Start(t.Context(), t.TempDir(), 3, "--partitions", "2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	survivor := c.Nodes[0]
	s := &shell{T: t, bin: bin, env: []string{"SERVICEBUS_CONNECTION_STRING=" + survivor.ConnectionString(false),
		"BUSBAR_OPS=http://" + survivor.Ops}}
	s.do(0, "", "queue", "create", "recover-a", "--partitioned")
	s.do(0, "", "queue", "create", "recover-b", "--session")
	for i := range 20 {
		s.do(0, "", "send", "recover-a", fmt.Sprint("a", i), "--partition-key", fmt.Sprint(i))
		s.do(0, "", "send", "recover-b", fmt.Sprint("b", i), "--session", fmt.Sprint(i%3))
	}
	bodies := func(queue string) string {
		t.Helper()
		var all []string
		for _, m := range s.messages("peek", queue, "--max", "100") {
			all = append(all, m.Body)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	before := bodies("recover-a") + " " + bodies("recover-b")
	if n := len(strings.Fields(before)); n != 40 {
		t.Fatalf("%d messages, want 40", n)
	}
	applied := waitCaughtUp(t, survivor, c)

	_, said := s.both(1, "", "debug", "recover", "--data-dir", survivor.Dir)
	if !strings.Contains(said, "must be stopped") {
		t.Errorf("a node that runs: %s", said)
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
	_, said = s.both(2, "", "debug", "recover", "--data-dir", survivor.Dir, "--data-dir", c.Nodes[1].Dir, "--yes")
	if !strings.Contains(said, "there is nothing to recover") {
		t.Errorf("two of three: %s", said)
	}
	for _, n := range c.Nodes[1:] {
		if err := os.RemoveAll(n.Dir); err != nil {
			t.Fatal(err)
		}
	}
	printed, said := s.both(2, "", "debug", "recover", "--data-dir", survivor.Dir, "-o", "json")
	if !strings.Contains(said, "nothing was changed: add --yes to recover 3 partitions") {
		t.Errorf("without --yes: %s", said)
	}
	var groups []struct {
		Partition        int
		Verdict          string
		Last             uint64
		Written          *time.Time
		Voters, Missing  []string
		Entities, Reborn []string
	}
	if err := json.Unmarshal([]byte(printed), &groups); err != nil || len(groups) != 3 {
		t.Fatalf("%s: %v", printed, err)
	}
	for _, g := range groups {
		if g.Verdict != "recover" || g.Last < applied[g.Partition] || g.Written == nil || len(g.Voters) != 3 || len(g.Missing) != 2 ||
			g.Partition > 0 && !slices.Contains(g.Entities, "recover-a") {
			t.Errorf("partition %d: %+v, applied %d", g.Partition, g, applied[g.Partition])
		}
	}
	_, said = s.both(0, "", "debug", "recover", "--data-dir", survivor.Dir, "--yes")
	if !strings.Contains(said, "recovered 3 partitions") || !strings.Contains(said, "NEVER start a lost node") {
		t.Errorf("recover said %s", said)
	}
	s.both(2, "", "debug", "recover", "--data-dir", survivor.Dir, "--yes") // a second time there is nothing to do

	start := func(n *cluster.Node) {
		t.Helper()
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatalf("%s: %v\n%s", n.ID, err, n.Log(4000))
		}
	}
	start(survivor)
	if after := bodies("recover-a") + " " + bodies("recover-b"); after != before {
		t.Errorf("alone: %s\nwant %s", after, before)
	}
	s.do(0, "", "send", "recover-a", "alone")
	for _, n := range c.Nodes[1:] {
		start(n)
	}
	began := time.Now()
	waitWhole(t, survivor)
	t.Logf("whole after %v", time.Since(began))
	survivor.Kill()
	s.env[0] = "SERVICEBUS_CONNECTION_STRING=" + c.Nodes[1].ConnectionString(false)
	if got := bodies("recover-a"); len(strings.Fields(got)) != 21 || !strings.Contains(got, "alone") {
		t.Errorf("without the survivor: %s", got)
	}
}

// TestSeveralSurvivorsAreRecoveredTogether: three of five disks are gone. Two survivors must not become two clusters, and a
// partition of which nothing is left is named.
func TestSeveralSurvivorsAreRecoveredTogether(t *testing.T) {
	c, err := cluster.Start(t.Context(), t.TempDir(), 5, "--partitions", "5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	two := c.Nodes[:2]
	s := &shell{T: t, bin: bin, env: []string{"SERVICEBUS_CONNECTION_STRING=" + two[0].ConnectionString(false), "BUSBAR_OPS=http://" + two[0].Ops}}
	s.do(0, "", "queue", "create", "recover-c", "--partitioned")
	for i := range 20 {
		s.do(0, "", "send", "recover-c", fmt.Sprint("c", i), "--partition-key", fmt.Sprint(i))
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes[2:] {
		if err := os.RemoveAll(n.Dir); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{"debug", "recover", "--data-dir", two[0].Dir, "--data-dir", two[1].Dir, "-o", "json"}
	printed, said := s.both(2, "", dirs...)
	var groups []struct {
		Partition int
		Verdict   string
		Rebuilt   []string
	}
	if err := json.Unmarshal([]byte(printed), &groups); err != nil || len(groups) != 6 {
		t.Fatalf("%s: %v", printed, err)
	}
	verdicts := map[string]int{}
	for _, g := range groups {
		verdicts[g.Verdict]++
	}
	t.Logf("%v", verdicts)
	if g := groups[0]; g.Partition != 0 || g.Verdict != "recover" || len(g.Rebuilt) != 1 {
		t.Fatalf("the catalog: %+v", g)
	}
	if verdicts["lost"] > 0 {
		if !strings.Contains(said, "have no replica in these directories") {
			t.Errorf("recover said %s", said)
		}
		dirs = append(dirs, "--lose-partitions")
	}
	s.do(0, "", append(dirs, "--yes")...)
	for _, n := range two {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "one leader of each partition that is left", func() (bool, any) {
		a, b := statusOf(t, two[0]), statusOf(t, two[1])
		led := 0
		for i, p := range a.Partitions {
			if len(b.Partitions) != len(a.Partitions) || b.Partitions[i].Leader != p.Leader {
				return false, []cluster.Status{a, b}
			}
			if p.Leader != "" {
				led++
			}
		}
		return led == 6-verdicts["lost"] && len(a.Partitions) == 6, []cluster.Status{a, b}
	})
	want := append([]string{"recover-c"}, createOutsideOf(t, s, verdicts["lost"])...) // the catalog works
	until(t, "the other survivor knows the queues", func() (bool, any) {
		var names []string
		for _, e := range statusOf(t, two[1]).Entities {
			names = append(names, e.Name)
		}
		return slices.Equal(names, want), names
	})
}

// createOutsideOf makes queues until one is answered, and returns the names of all. A queue that falls to a lost partition
// is in the catalog, but nobody can serve it, so its command fails. New queues fall to the partitions in turn (A1), so each
// lost partition costs one try at most.
func createOutsideOf(t *testing.T, s *shell, lost int) (names []string) {
	t.Helper()
	for {
		names = append(names, fmt.Sprintf("recover-d%d", len(names)))
		cmd := exec.CommandContext(t.Context(), s.bin, "queue", "create", names[len(names)-1])
		cmd.Env = append(os.Environ(), s.env...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return names
		}
		if len(names) > lost || cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("queue create %s, with %d partitions lost: %v: %s", names[len(names)-1], lost, err, out)
		}
	}
}

// until asks again and again, and fails with what it last heard.
func until(t *testing.T, what string, ok func() (bool, any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*soon)
	defer cancel()
	for {
		done, last := ok()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not yet: %+v", what, last)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func statusOf(t *testing.T, n *cluster.Node) (s cluster.Status) {
	t.Helper()
	b, err := n.Get(t.Context(), "/api/cluster")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Logf("%s: %v", n.ID, err)
		return cluster.Status{}
	}
	return s
}

// waitCaughtUp waits until a node has applied what the others have, and returns how far that is.
func waitCaughtUp(t *testing.T, n *cluster.Node, c *cluster.Cluster) map[int]uint64 {
	t.Helper()
	most := map[int]uint64{}
	for _, other := range c.Nodes {
		for _, p := range statusOf(t, other).Partitions {
			most[p.ID] = max(most[p.ID], p.Applied)
		}
	}
	until(t, "the survivor has caught up", func() (bool, any) {
		s := statusOf(t, n)
		for _, p := range s.Partitions {
			if p.Applied < most[p.ID] {
				return false, s.Partitions
			}
		}
		return len(s.Partitions) == len(most) && len(most) == 3, s.Partitions
	})
	return most
}

// waitWhole waits until nodes that are alive are the three voters of every partition, and nothing differs from what the
// catalog wants.
func waitWhole(t *testing.T, n *cluster.Node) {
	t.Helper()
	until(t, "three voters in each partition", func() (bool, any) {
		var s struct {
			Nodes      []struct{ ID, State string }
			Partitions []struct {
				ID              int
				Leader          string
				Voters, Differs []string
			}
		}
		b, err := n.Get(t.Context(), "/api/cluster")
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err != nil {
			return false, err
		}
		alive := map[string]bool{}
		for _, n := range s.Nodes {
			alive[n.ID] = n.State == "alive"
		}
		for _, p := range s.Partitions {
			if len(p.Voters) != 3 || p.Leader == "" || len(p.Differs) > 0 || slices.ContainsFunc(p.Voters, func(id string) bool { return !alive[id] }) {
				return false, string(b)
			}
		}
		return len(s.Partitions) == 3, string(b)
	})
}
