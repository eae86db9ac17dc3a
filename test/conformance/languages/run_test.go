package languages

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// bed is a cluster and the ways to it.
type bed struct {
	cluster   *cluster.Cluster
	standards []*standard // one for each node, or none
}

// try runs one library over every wire and size of cluster; its column is that of the first run.
func (l library) try(t *testing.T, scenarios []Scenario) Column {
	column := Column{}
	for _, size := range strings.Split(*nodes, ",") {
		count, err := strconv.Atoi(size)
		if err != nil || count < 1 {
			t.Fatalf("-nodes: %q is no number of nodes", size)
		}
		wires := l.chosen()
		b := l.start(t, count, wires)
		for _, wire := range wires {
			t.Run(wire.Name+"/"+size, func(t *testing.T) {
				rep := l.run(t, wire, b)
				l.judge(t, rep, scenarios)
				if column.Cells == nil {
					column = l.column(rep)
				}
			})
		}
	}
	return column
}

// chosen are the wires of the flag that the version has. A version that has none of them runs over
// the first that it has.
func (l library) chosen() []Wire {
	var all []Wire
	for _, name := range strings.Split(*wires, ",") {
		if w, ok := l.version.wire(name); ok {
			all = append(all, w)
		}
	}
	if all == nil {
		all = l.version.Wires[:1]
	}
	return all
}

// column is what the table says of the library.
func (l library) column(rep *Report) Column {
	c := Column{Heading: l.heading(), Library: rep.Library, Wires: l.version.Wires, Cells: map[string]Outcome{}}
	for id, o := range rep.Outcomes {
		c.Cells[id] = o
	}
	for id, why := range l.absent {
		c.Cells[id] = Outcome{State: "skip", Text: absentMark + why}
	}
	return c
}

// start starts count nodes, with standard ports where a wire needs them.
func (l library) start(t *testing.T, count int, wires []Wire) *bed {
	t.Helper()
	b := &bed{}
	var ports []string
	for _, w := range wires {
		if w.Port != "" {
			ports = append(ports, w.Port)
		}
	}
	var extra []string
	dir := t.TempDir()
	if len(ports) > 0 {
		var addresses []net.IP
		for range count {
			s := listenStandard(t, ports)
			b.standards = append(b.standards, s)
			addresses = append(addresses, s.ip)
		}
		if err := cluster.Certify(dir, nil, addresses); err != nil {
			t.Fatal(err)
		}
		extra = []string{"--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key")}
	}
	b.cluster = start(t, count, extra...)
	for i, s := range b.standards {
		b.cluster.Nodes[i].CA = filepath.Join(dir, "ca.pem")
		s.forward(b.cluster.Nodes[i].TLS)
	}
	return b
}

func start(t *testing.T, count int, extra ...string) *cluster.Cluster {
	t.Helper()
	if count > 1 {
		c, err := cluster.Start(t.Context(), t.TempDir(), count, extra...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, c) })
		return c
	}
	n, err := cluster.StartSingle(t.Context(), t.TempDir(), extra...)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Nodes: []*cluster.Node{n}}
	t.Cleanup(func() { end(t, c) })
	return c
}

func end(t *testing.T, c *cluster.Cluster) {
	for _, n := range c.Nodes {
		if n.Pid() == 0 {
			t.Errorf("%s died during the test", n.ID)
		}
		n.Stop()
		if t.Failed() {
			t.Logf("%s printed at last:\n%s", n.ID, n.Log(4000))
		}
	}
}

// run starts the library's runner and reads what it says.
func (l library) run(t *testing.T, wire Wire, b *bed) *Report {
	t.Helper()
	began := time.Now()
	rep, said, failed := l.say(t, runLimit, b.environment(wire), l.version.Version, l.client)
	if failed != nil || !rep.Ended {
		t.Errorf("the runner did not come to its end: %v", failed)
	}
	if rep.Version != l.version.Version {
		t.Errorf("the runner has version %q of %s, versions.txt says %s", rep.Version, rep.Library, l.version.Version)
	}
	if t.Failed() {
		t.Logf("notes: %s\nit printed at last: %s", strings.Join(rep.Notes, "\n"), tail(said, 4000))
	}
	times.add(fmt.Sprintf("%s over %s, %d nodes", l.name(), wire.Name, len(b.cluster.Nodes)), time.Since(began))
	return rep
}

// say runs run.sh of the library within the limit and returns its report and what it printed beside that.
func (l library) say(t *testing.T, limit time.Duration, env []string, args ...string) (rep *Report, said string,
	failed error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", l.version.Runner, "run.sh"), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "BUSBAR_ABSENT="+strings.Join(l.absentIDs(), " "))
	if *only != "" {
		cmd.Env = append(cmd.Env, "BUSBAR_ONLY="+*only)
	}
	// The runner has children; all go when the time is up, or this process does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, beside bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &beside
	failed = cmd.Run()
	rep, err := ReadReport(&out)
	if err != nil {
		t.Errorf("the runner's words: %v", err)
	}
	return rep, beside.String(), failed
}

func tail(s string, limit int) string { return s[max(0, len(s)-limit):] }

// environment tells the runner where the broker is: one line for each node.
func (b *bed) environment(wire Wire) []string {
	var data, admin, addresses []string
	for i, n := range b.cluster.Nodes {
		if wire.Port != "" {
			data = append(data, b.standards[i].connectionString(cluster.KeyName, cluster.Key))
		} else {
			data = append(data, n.ConnectionString(wire.Name != "plain"))
		}
		admin = append(admin, n.Secure())
		if wire.Name == "plain" {
			addresses = append(addresses, n.AMQP)
		} else {
			addresses = append(addresses, n.TLS)
		}
	}
	return []string{
		"BUSBAR_WIRE=" + wire.Name,
		"BUSBAR_DATA=" + strings.Join(data, "\n"),
		"BUSBAR_ADMIN=" + strings.Join(admin, "\n"),
		"BUSBAR_ADDRESSES=" + strings.Join(addresses, "\n"),
		"BUSBAR_KEY_NAME=" + cluster.KeyName,
		"BUSBAR_KEY=" + cluster.Key,
		"BUSBAR_CA=" + b.cluster.Nodes[0].CA,
	}
}

// judge turns the report into subtests.
func (l library) judge(t *testing.T, rep *Report, scenarios []Scenario) {
	for _, s := range scenarios {
		o, ok := rep.Outcomes[s.ID]
		if !ok {
			continue
		}
		if l.absent[s.ID] != "" {
			t.Errorf("%s ran, and absent.txt says that the version lacks it", s.ID)
		}
		t.Run(s.ID, func(t *testing.T) {
			if o.State == "fail" {
				t.Errorf("%s, after %s: %s", s.Title, o.Took, o.Text)
			}
		})
	}
	for id := range rep.Outcomes {
		if !slices.ContainsFunc(scenarios, func(s Scenario) bool { return s.ID == id }) {
			t.Errorf("%s is not in scenarios.txt", id)
		}
	}
}
