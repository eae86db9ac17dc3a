package examples

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

const (
	programLimit = 3 * time.Minute
	firstKill    = 100 * time.Millisecond // quick programs meet it
	beforeKill   = 1500 * time.Millisecond
	whileDead    = 1500 * time.Millisecond
)

// TestPrograms runs all programs of each language as their pages say.
func TestPrograms(t *testing.T) {
	for _, l := range all {
		t.Run(l.title, func(t *testing.T) {
			if l.missing() {
				fmt.Printf("SKIPPED: the examples in %s did not run, for the command %s is not on the path\n", l.title, l.needs)
				t.SkipNow()
			}
			t.Parallel() // each language has its own nodes, and its programs wait more than they work
			began := time.Now()
			dir := l.install(t)
			installed := time.Since(began)
			c := start(t)
			for _, name := range names(t) {
				apply(t, c, name)
			}
			began = time.Now()
			finish := killOthers(t, c)
			t.Run("with", func(t *testing.T) {
				for _, name := range names(t) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						l.run(t, c, dir, name)
					})
				}
			})
			kills := finish()
			fmt.Printf("%6.1f s  examples in %s, %d leaders killed; %.1f s to install and build\n",
				time.Since(began).Seconds(), l.title, kills, installed.Seconds())
			if kills == 0 && len(c.Nodes) > 1 {
				t.Error("no node that led a partition was killed meanwhile")
			}
		})
	}
}

// run runs one program and holds what it prints against its page.
func (l language) run(t *testing.T, c *cluster.Cluster, dir, name string) {
	page, err := os.ReadFile(filepath.Join(root, name, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := output(string(page), l.name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), programLimit)
	defer cancel()
	cmd := l.command(dir, name)
	cmd.Env = append(cmd.Environ(), "SERVICEBUS_CONNECTION_STRING="+c.Nodes[0].Plain())
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	// A program may have children; all go when the time is up, or this process does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err = cmd.Wait()
	if !over() {
		t.Errorf("the program did not end within %s", programLimit)
	}
	if err != nil {
		t.Errorf("the program ended with %v, and said:\n%s", err, &said)
	}
	if err := same(out.String(), want); err != nil {
		t.Errorf("%v; it printed:\n%s", err, &out)
	}
}

// start starts three nodes, and one with -short.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	count := 3
	if testing.Short() {
		count = 1
	}
	c, err := cluster.Start(t.Context(), t.TempDir(), count)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			n.Stop()
			if t.Failed() {
				t.Logf("%s printed at last:\n%s", n.ID, n.Log(3000))
			}
		}
	})
	return c
}

// apply makes the entities of an example, by the command that its page names.
func apply(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, "entities", "apply", filepath.Join(root, name, "Config.json"))
	cmd.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+c.Nodes[0].Plain())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the entities of %s: %v\n%s", name, err, out)
	}
}

// killOthers kills one node after the other, but never the first, to which the clients connect. finish ends that, when
// all nodes run again, and returns how many of the killed nodes led a partition.
func killOthers(t *testing.T, c *cluster.Cluster) (finish func() (kills int)) {
	t.Helper()
	if len(c.Nodes) == 1 {
		return func() int { return 0 }
	}
	stop, kills := make(chan struct{}), 0
	var killer sync.WaitGroup
	killer.Go(func() {
		for wait := firstKill; ; wait = beforeKill {
			select {
			case <-stop:
				return
			case <-time.After(wait):
			}
			victim, err := leader(t.Context(), c)
			if err != nil {
				t.Errorf("look for a leader: %v", err)
				return
			}
			if victim == nil {
				continue // the first node leads all, until leaderships are spread again
			}
			victim.Kill()
			kills++
			time.Sleep(whileDead)
			if err := victim.Start(); err != nil {
				t.Errorf("start %s again: %v", victim.ID, err)
				return
			}
			if err := victim.WaitReady(t.Context()); err != nil {
				t.Errorf("wait for %s: %v", victim.ID, err)
				return
			}
		}
	})
	return func() int {
		close(stop)
		killer.Wait()
		return kills
	}
}

// leader returns the node that leads the most partitions with messages, but not the first. It is nil if none does.
func leader(ctx context.Context, c *cluster.Cluster) (*cluster.Node, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	led := map[string]int{}
	for _, p := range s.Partitions {
		if p.ID != 0 && p.Leader != "" {
			led[p.Leader]++
		}
	}
	var most *cluster.Node
	count := 0
	for id, n := range led {
		known, err := c.NodeOf(ctx, id)
		if err != nil {
			return nil, err
		}
		if known != c.Nodes[0] && n > count {
			most, count = known, n
		}
	}
	return most, nil
}
