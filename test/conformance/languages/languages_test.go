package languages

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/conformance/node"
)

var (
	wires = flag.String("wires", "plain", "what to connect over: plain, tls, websocket, separated by commas")
	nodes = flag.String("nodes", "1", "sizes of clusters, separated by commas")
	only  = flag.String("only", "", "ids of scenarios, separated by blanks; the table is left alone")
	write = flag.Bool("write", false, "write docs/compatibility.md")
)

const (
	scenarioList = "../scenarios.txt"
	tableFile    = "../../../docs/compatibility.md"
	installLimit = 5 * time.Minute
	runLimit     = 10 * time.Minute
	// atOnce is how many libraries run at a time: each has many scenarios that wait and a few that work.
	atOnce = 2
)

// library is one column of the table: a folder with a run.sh, and which of its clients to try.
type library struct {
	dir, client string
	language    string
	wires       []string
}

// libraries are what is tried, in the order of the table's columns.
var libraries = []library{
	{"js", "", "JavaScript", []string{"plain", "tls", "websocket"}},
	{"python", "sync", "Python", []string{"plain", "websocket"}},
	{"python", "aio", "Python", []string{"plain", "websocket"}},
	{"java", "", "Java", []string{"plain"}},
	{"proton", "", "Qpid Proton", []string{"plain", "tls"}},
	{"jms", "", "JMS", []string{"plain", "tls"}},
}

func (l library) name() string { return strings.TrimSuffix(l.dir+"-"+l.client, "-") }

// TestLibraries runs every library against nodes of its own and compares with the table.
func TestLibraries(t *testing.T) {
	scenarios, err := ReadScenarios(scenarioList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		install(t, l.dir)
	}
	columns := make([]Column, len(libraries))
	t.Run("with", func(t *testing.T) {
		slots := make(chan struct{}, atOnce)
		for i, l := range libraries {
			t.Run(l.name(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				columns[i] = l.try(t, scenarios)
			})
		}
	})
	if !t.Failed() && *only == "" && complete(columns) {
		compare(t, Render(scenarios, columns))
	}
}

// complete reports whether every library has run: with -run some have not.
func complete(columns []Column) bool {
	return !slices.ContainsFunc(columns, func(c Column) bool { return c.Cells == nil })
}

// install makes sure that what the library needs is there; that is not the scenarios' time.
func install(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, filepath.Join("..", dir, "run.sh"), "--install").CombinedOutput()
	if err != nil {
		t.Fatalf("install %s: %v\n%s", dir, err, out)
	}
	t.Logf("%s is installed, %s", dir, time.Since(began).Round(time.Millisecond))
}

// try runs one library over every wire and size of cluster; its column is that of the first run.
func (l library) try(t *testing.T, scenarios []Scenario) Column {
	column := Column{}
	for _, size := range strings.Split(*nodes, ",") {
		count, err := strconv.Atoi(size)
		if err != nil || count < 1 {
			t.Fatalf("-nodes: %q is no number of nodes", size)
		}
		c := start(t, count)
		for _, wire := range strings.Split(*wires, ",") {
			if !slices.Contains(l.wires, wire) {
				t.Logf("%s does not connect over %s", l.name(), wire)
				continue
			}
			t.Run(wire+"/"+size, func(t *testing.T) {
				rep := l.run(t, wire, c)
				judge(t, rep, scenarios)
				if column.Cells == nil {
					column = Column{Heading: fmt.Sprintf("%s `%s` %s", l.language, rep.Library, rep.Version),
						Cells: rep.Outcomes}
				}
			})
		}
	}
	return column
}

func start(t *testing.T, count int) *node.Cluster {
	t.Helper()
	if count > 1 {
		c, err := node.StartCluster(t.Context(), t.TempDir(), count)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, c) })
		return c
	}
	n, err := node.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &node.Cluster{Nodes: []*node.Node{n}}
	t.Cleanup(func() { end(t, c) })
	return c
}

func end(t *testing.T, c *node.Cluster) {
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
func (l library) run(t *testing.T, wire string, c *node.Cluster) *Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", l.dir, "run.sh"), l.client)
	cmd.Env = append(os.Environ(), environment(wire, c)...)
	// The runner has children; all go when the time is up, or this process does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	failed := cmd.Run()
	rep, err := ReadReport(&out)
	if err != nil {
		t.Errorf("the runner's words: %v", err)
	}
	if failed != nil || !rep.Ended {
		t.Errorf("the runner did not come to its end: %v", failed)
	}
	if t.Failed() {
		t.Logf("notes: %s\nit printed at last: %s", strings.Join(rep.Notes, "\n"), tail(said.String(), 4000))
	}
	return rep
}

func tail(s string, limit int) string { return s[max(0, len(s)-limit):] }

// environment tells the runner where the broker is: one line for each node.
func environment(wire string, c *node.Cluster) []string {
	var data, admin, addresses []string
	for _, n := range c.Nodes {
		data = append(data, n.ConnectionString(wire != "plain"))
		admin = append(admin, n.Secure())
		if wire == "plain" {
			addresses = append(addresses, n.AMQP)
		} else {
			addresses = append(addresses, n.TLS)
		}
	}
	return []string{
		"BUSBAR_WIRE=" + wire,
		"BUSBAR_DATA=" + strings.Join(data, "\n"),
		"BUSBAR_ADMIN=" + strings.Join(admin, "\n"),
		"BUSBAR_ADDRESSES=" + strings.Join(addresses, "\n"),
		"BUSBAR_KEY_NAME=" + node.KeyName,
		"BUSBAR_KEY=" + node.Key,
		"BUSBAR_CA=" + c.Nodes[0].CA,
		"BUSBAR_ONLY=" + *only,
	}
}

// judge turns the report into subtests.
func judge(t *testing.T, rep *Report, scenarios []Scenario) {
	left := map[string]bool{}
	for id := range rep.Outcomes {
		left[id] = true
	}
	for _, s := range scenarios {
		o, ok := rep.Outcomes[s.ID]
		if !ok {
			continue
		}
		delete(left, s.ID)
		t.Run(s.ID, func(t *testing.T) {
			if o.State == "fail" {
				t.Errorf("%s, after %s: %s", s.Title, o.Took, o.Text)
			}
		})
	}
	for id := range left {
		t.Errorf("%s is not in scenarios.txt", id)
	}
}

// compare holds the table against what came out, so that nothing stops passing in silence.
func compare(t *testing.T, got string) {
	if *write {
		if err := os.WriteFile(tableFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("docs/compatibility.md tells something else; see what changed, then run make compatibility:\n%s",
			changed(string(want), got))
	}
}

// changed returns the lines that only one of the texts has.
func changed(was, is string) string {
	var b strings.Builder
	old, now := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, l := range old {
		if !slices.Contains(now, l) {
			fmt.Fprintln(&b, "-", l)
		}
	}
	for _, l := range now {
		if !slices.Contains(old, l) {
			fmt.Fprintln(&b, "+", l)
		}
	}
	return b.String()
}
