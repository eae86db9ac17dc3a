package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/ledger"
)

const (
	// copyLimit bounds a backup and its restore beside other faults.
	copyLimit = 2 * time.Minute
	// copyPartitions is another number than that of the cluster under load.
	copyPartitions = "9"
)

// takeLimit is how long other faults wait for a backup. A process that is paused for longer takes its disk for a broken one.
const takeLimit = 5 * time.Second

// elsewhere is a backup that is taken beside other faults, and restored into a cluster of another size. Faults do not wait for
// the restore, but the end of the run does.
type elsewhere struct {
	b     *bed
	dir   string
	say   func(format string, args ...any)
	taken chan struct{}
}

// restoreElsewhere takes a backup under load, and restores it into a cluster of one node and more partitions. The restored
// messages are compared with what clients had done until then.
func restoreElsewhere(s *strike) error {
	e := &elsewhere{b: s.bed, dir: filepath.Join(s.bed.dir, fmt.Sprintf("copy-%d", time.Now().UnixNano())), say: s.say,
		taken: make(chan struct{})}
	s.what = filepath.Base(e.dir)
	e.b.copies.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), copyLimit)
		defer cancel()
		if err := e.run(ctx); err != nil {
			e.say("  %s was not judged: %v", filepath.Base(e.dir), err)
		}
	})
	s.bites = func(*bed) error {
		select {
		case <-e.taken:
			return nil
		case <-time.After(takeLimit):
			return fmt.Errorf("no backup was taken within %s", takeLimit)
		}
	}
	return nil
}

func (e *elsewhere) run(ctx context.Context) error {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return err
	}
	began, ended, err := e.backUp(ctx)
	if err != nil {
		return err
	}
	close(e.taken)
	n := newNode(e.b.sup, 1, "127.0.0.1", filepath.Join(e.dir, "data"), filepath.Join(e.dir, "n1.log"))
	defer func() { _ = n.end(syscall.SIGKILL, 10*time.Second) }() // it has served its purpose
	if err := cluster.OnLoopback([]*cluster.Node{n.Node}, cluster.Membership{Program: []string{e.b.cfg.binary},
		Extra: []string{"--allow-plaintext-peers", "--partitions", copyPartitions}}); err != nil {
		return err
	}
	if err := errors.Join(n.Start(), n.WaitReady(ctx)); err != nil {
		return err
	}
	at := time.Now()
	if err := e.busbar(ctx, n, "restore", filepath.Join(e.dir, "copy")); err != nil {
		// No fault is about this cluster: what it refuses is a finding.
		e.b.found("a backup was not restored: %v", err)
		return err
	}
	there, err := listed(ctx, []*node{n}, e.b.world.queues)
	if err != nil {
		return err
	}
	lives := check.LivesOf(e.b.world.rec.Copy(), began)
	faults := ledger.JudgeCopy(began, ended, lives, check.FoundIn(there))
	for i, f := range faults {
		if i == 10 {
			e.b.found("%s: and %d more", filepath.Base(e.dir), len(faults)-i)
			break
		}
		e.b.found("%s, taken from %d to %d: %s", filepath.Base(e.dir), began, ended, f)
	}
	e.say("  %s has %d of %d messages, was taken in %s and restored in %s", filepath.Base(e.dir), len(there), len(lives),
		time.Duration(ended-began).Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
	e.b.mu.Lock()
	e.b.restored++
	e.b.mu.Unlock()
	if len(faults) > 0 {
		return nil // the files are kept
	}
	return os.RemoveAll(filepath.Join(e.dir, "data"))
}

// backUp asks one node after the other, for other faults are under way. It returns when the backup that succeeded was taken.
func (e *elsewhere) backUp(ctx context.Context) (began, ended int64, err error) {
	for try := range commandTries {
		n := e.b.nodes[try%len(e.b.nodes)]
		if n.Pid() == 0 || n.state() == "T" {
			continue // an operator asks one that answers
		}
		began = time.Now().UnixNano()
		limit, cancel := context.WithTimeout(ctx, 45*time.Second) // longer than the hold of a backup whose node has died
		err = e.busbar(limit, n, "create", e.dir, "--name", "copy")
		cancel()
		if err == nil {
			return began, time.Now().UnixNano(), nil
		}
		if err := os.RemoveAll(filepath.Join(e.dir, "copy")); err != nil {
			return 0, 0, err
		}
		wait(ctx, time.Second)
	}
	return 0, 0, fmt.Errorf("no backup was taken: %w", err)
}

// busbar runs busbar backup with a node.
func (e *elsewhere) busbar(ctx context.Context, n *node, args ...string) error {
	_, ops := n.Doors()
	c := exec.CommandContext(ctx, e.b.cfg.binary, append([]string{"backup"}, args...)...)
	c.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+n.ConnectionString(false), "BUSBAR_OPS=http://"+ops)
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("busbar backup %s: %w: %s", strings.Join(args, " "), err, shorten(string(out)))
	}
	return nil
}

// found notes what a fault has found out. It fails the run.
func (b *bed) found(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.findings = append(b.findings, fmt.Sprintf(format, args...))
}
