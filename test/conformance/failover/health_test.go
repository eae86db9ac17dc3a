package failover

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// healthLimit bounds the whole test. A busy machine takes a while to start three processes.
const healthLimit = 3 * time.Minute

// TestTheDoctorOfRealNodes: three processes are healthy, and the answer of any of them tells of all. One that is killed, and
// one that stands still, are told by the others with what cures them, and the exit code says so. The catalog is led by
// the node that an operator names. An identity whose disk was replaced is told, and forgotten.
func TestTheDoctorOfRealNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), healthLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	fatal(t, "start", err)
	t.Cleanup(c.Close)
	bin, err := cluster.Binary()
	fatal(t, "binary", err)
	ask := func(args ...string) (string, int) {
		t.Helper()
		_, ops := c.Nodes[0].Doors()
		out, err := exec.CommandContext(ctx, bin, append([]string{"cluster", "--ops", ops}, args...)...).Output()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		if ended != nil {
			if ended.ExitCode() != 10 {
				t.Logf("cluster %s: %s", strings.Join(args, " "), ended.Stderr)
			}
			return string(out), ended.ExitCode()
		}
		return string(out), 0
	}
	if out, code := ask("health", "--wait", "1m"); code != 0 || !strings.HasPrefix(out, "healthy") {
		t.Fatalf("a cluster that has just started: %d %s", code, out)
	}
	if out, code := ask("transfer-leader", "catalog", "n2"); code != 0 || out != "partition catalog is led by n2\n" {
		t.Errorf("transfer of the catalog: %d %s", code, out)
	}
	tells := func(what string, code int, wants ...string) {
		t.Helper()
		for {
			out, got := ask("doctor")
			lacking := slices.DeleteFunc(slices.Clone(wants), func(w string) bool { return strings.Contains(out, w) })
			if got == code && len(lacking) == 0 {
				return
			}
			if sleep(ctx, 200*time.Millisecond); ctx.Err() != nil {
				t.Fatalf("%s: exit code %d, lacks %q:\n%s", what, got, lacking, out)
			}
		}
	}
	c.Nodes[2].Kill()
	tells("a node that was killed", 10, "alarm: node n3 is away, and the cluster wants replicas there.",
		"busbar cluster forget n3", "partition 1 is stopped by one more loss: 2 of 3 voters work.", "bring back n3")
	if out, code := ask("health", "-o", "json"); code != 10 || !json.Valid([]byte(out)) || !strings.Contains(out, `"code":"quorum-at-risk"`) {
		t.Errorf("health as JSON: %d %s", code, out)
	}
	if out, code := ask("status"); code != 0 || !strings.Contains(out, "VERSION") {
		t.Errorf("status: %d %s", code, out)
	}
	fatal(t, "start again", c.Nodes[2].Start())
	if out, code := ask("health", "--wait", "2m"); code != 0 {
		t.Fatalf("after n3 came back: %d %s", code, out)
	}
	fatal(t, "freeze", c.Nodes[2].Freeze())
	tells("a node that stands still", 10, "node n3 is")
	fatal(t, "thaw", c.Nodes[2].Thaw())
	if out, code := ask("health", "--wait", "2m"); code != 0 {
		t.Fatalf("after n3 went on: %d %s", code, out)
	}
	s, err := c.Nodes[2].Status(ctx)
	fatal(t, "identity", err)
	lost := s.Nodes[slices.IndexFunc(s.Nodes, func(n cluster.NodeRow) bool { return n.ID == "n3" })].UUID
	c.Nodes[2].Kill()
	fatal(t, "lose the disk", os.RemoveAll(c.Nodes[2].Dir))
	fatal(t, "start with a new disk", c.Nodes[2].Start())
	tells("a node whose disk was replaced", 10, "warning: node "+lost+" has the name of n3, which lives and has its places",
		"busbar cluster forget "+lost)
	if out, code := ask("forget", lost); code != 0 {
		t.Fatalf("forget: %d %s", code, out)
	}
	tells("a lost identity that is forgotten", 0, "nothing is wrong")
}
