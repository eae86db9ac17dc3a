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
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/namespaces"
)

// TestDiskThatTurnsReadOnly has the kernel turn the disk of the busiest node read-only under load: its
// leaderships leave, it says what to do, nothing is lost, and it comes back with a disk that can be
// written.
func TestDiskThatTurnsReadOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of real processes")
	}
	if err := noDisks(); err != nil || !namespaces.Inside() {
		t.Skip("no disks of their own: ", err, noNamespaces())
	}
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed:      bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: overBridge, nodes: 3, disks: true},
		schedule: schedule{calm: 2 * time.Second}}
	cfg.schedule.instead = func(ctx context.Context, b *bed) error { return turnReadOnly(ctx, t, b) }
	busy(t, judged(t, cfg))
}

func turnReadOnly(ctx context.Context, t *testing.T, b *bed) error {
	victim := b.busiest(ctx)
	if err := victim.disk.goneReadOnly(); err != nil {
		return err
	}
	began := time.Now()
	if err := awaitStatus(ctx, b, victim, func(s *cluster.Status) error {
		for _, p := range s.Partitions {
			if p.Leader == "" || p.Leader == victim.ID {
				return fmt.Errorf("partition %d is led by %q", p.ID, p.Leader)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	t.Logf("everything is led by others %s after the disk of %s turned read-only",
		time.Since(began).Round(10*time.Millisecond), victim.ID)
	if _, err := victim.Get(ctx, "/readyz"); err == nil || !strings.Contains(err.Error(), "read-only") {
		return fmt.Errorf("/readyz of the node without a disk: %w", err)
	}
	said, err := os.ReadFile(victim.LogFile)
	if err != nil {
		return err
	}
	for _, want := range []string{"read-only file system", "start the node again"} {
		if !strings.Contains(string(said), want) {
			return fmt.Errorf("the log of %s has no word of %q", victim.ID, want)
		}
	}
	wait(ctx, lonelyLoad) // two nodes carry on
	if victim.Pid() == 0 {
		return fmt.Errorf("%s has ended, and its clients with it", victim.ID)
	}
	if err := victim.end(syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	if err := errors.Join(victim.disk.detach(), victim.disk.attach()); err != nil {
		return err
	}
	if err := victim.Start(); err != nil {
		return err
	}
	return (&exchange{t: t, b: b}).member(ctx, victim)
}

// awaitStatus waits until every node but one tells what is wanted.
func awaitStatus(ctx context.Context, b *bed, except *node, wanted func(*cluster.Status) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	var last error
	for {
		var err error
		for _, n := range b.nodes {
			if n == except {
				continue
			}
			s, failed := n.Status(ctx)
			if failed == nil {
				failed = wanted(&s)
			}
			err = errors.Join(err, failed)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("after %s: %w", readyLimit, last)
		}
		last = err
		wait(ctx, 20*time.Millisecond)
	}
}

// TestNodeOnAReadOnlyDisk starts a node where it cannot write: it says so, and what to do, and ends.
func TestNodeOnAReadOnlyDisk(t *testing.T) {
	if !namespaces.Inside() {
		t.Skip("no mount namespace: ", noNamespaces())
	}
	mount := filepath.Join(t.ArtifactDir(), "disk")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Run("mount", "-t", "tmpfs", "-o", smallDisk, "none", mount); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Run("umount", "-l", mount) })
	used := filepath.Join(mount, "used")
	lone(t, used, func(n *node) {
		limit, cancel := context.WithTimeout(t.Context(), readyLimit)
		defer cancel()
		if err := n.WaitReady(limit); err != nil {
			t.Fatal(err)
		}
	})
	if err := namespaces.Run("mount", "-o", "remount,ro", mount); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{used, filepath.Join(mount, "fresh")} {
		limit, cancel := context.WithTimeout(t.Context(), readyLimit)
		out, err := exec.CommandContext(limit, binary(t), "serve", "--dev", "--data-dir", dir, "--amqp-listen",
			"127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0").CombinedOutput()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: %v, want exit code 1", dir, err)
		}
		for _, want := range []string{"read-only file system", "remount,rw", dir} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: nothing of %q in: %s", dir, want, out)
			}
		}
		if strings.Contains(string(out), "goroutine ") {
			t.Errorf("%s: it panicked: %s", dir, out)
		}
	}
	if err := namespaces.Run("mount", "-o", "remount,rw", mount); err != nil {
		t.Fatal(err)
	}
	lone(t, used, func(n *node) {
		limit, cancel := context.WithTimeout(t.Context(), readyLimit)
		defer cancel()
		if err := n.WaitReady(limit); err != nil {
			t.Error(err)
		}
	})
}

// lone runs one node over a directory while f lasts.
func lone(t *testing.T, dir string, f func(*node)) {
	t.Helper()
	b := &bed{dir: filepath.Dir(dir), network: overLoopback, sup: supervised(t), all: &cluster.Cluster{}, terms: newTermCount()}
	n := newNode(b.sup, 1, "127.0.0.1", dir, filepath.Join(t.ArtifactDir(), "lone.log"))
	b.add(n)
	cfg := bedConfig{binary: binary(t), network: overLoopback, nodes: 1}
	if err := cluster.OnLoopback(b.all.Nodes, cfg.membership()); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	f(n)
	if err := b.close(); err != nil {
		t.Error(err)
	}
}
