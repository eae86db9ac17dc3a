package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// exchange replaces the data directory of n3 in the moment in which it hurts most: n2 was away while
// the other two acknowledged, and of those two n1 is away when n3 comes back. If n3 now voted with what
// it finds on its disk, it and n2 would be a majority without a single one of those messages (R8,
// decision 0026).
type exchange struct {
	t   *testing.T
	b   *bed
	dir string
	how exchanged
}

// exchanged is what n3 finds.
type exchanged struct {
	name string
	// replace returns what does it, after what it takes to prepare it.
	replace func(x *exchange, ctx context.Context, n *node) (func() error, error)
	another bool   // it is another node from then on
	says    string // in its log
}

// lose has n3 lose a part of its directory, "" for all of it.
func lose(part string) func(*exchange, context.Context, *node) (func() error, error) {
	return func(_ *exchange, _ context.Context, n *node) (func() error, error) {
		return func() error { return os.RemoveAll(filepath.Join(n.Dir, part)) }, nil
	}
}

// Times of one exchange.
const (
	lonelyLoad  = 4 * time.Second // what n1 and n3 acknowledge while n2 is away
	lonelyLook  = 8 * time.Second // longer than any election takes
	memberLimit = 90 * time.Second
	rebuiltLoad = 3 * time.Second // with n1 away, so that n3 is half of the majority
)

// TestWipedDirectoryTakesNothingBack removes a node's data directory while the clients go on.
func TestWipedDirectoryTakesNothingBack(t *testing.T) {
	exchangeDisk(t, exchanged{"nothing", lose(""), true, "joining a cluster"})
}

// TestLostGroupsDirectoryTakesNothingBack loses the disk that the groups of a node are on, and not that of
// its identity: it is the same node, which has forgotten everything that it acknowledged.
func TestLostGroupsDirectoryTakesNothingBack(t *testing.T) {
	exchangeDisk(t, exchanged{"no groups", lose("groups"), false, "data of the group is missing"})
}

// TestOldCopyOfADirectoryTakesNothingBack puts a node's data directory back from a copy while the
// clients go on.
func TestOldCopyOfADirectoryTakesNothingBack(t *testing.T) {
	exchangeDisk(t, exchanged{"an old copy", (*exchange).copyBack, false, "old copy"})
}

func exchangeDisk(t *testing.T, how exchanged) {
	if testing.Short() {
		t.Skip("a minute of real processes")
	}
	dir := t.ArtifactDir()
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed:      bedConfig{dir: dir, binary: binary(t), network: testNetwork(), nodes: 3},
		schedule: schedule{calm: 2 * time.Second}}
	cfg.schedule.instead = func(ctx context.Context, b *bed) error {
		return (&exchange{t: t, b: b, dir: dir, how: how}).run(ctx)
	}
	busy(t, judged(t, cfg))
}

func (x *exchange) run(ctx context.Context) error {
	n1, n2, n3 := x.b.nodes[0], x.b.nodes[1], x.b.nodes[2]
	replaced, err := x.how.replace(x, ctx, n3)
	if err != nil {
		return err
	}
	before, err := n3.Status(ctx)
	if err != nil {
		return err
	}
	if err := x.alone(ctx, n1, n2, n3); err != nil {
		return err
	}
	if err := replaced(); err != nil {
		return err
	}
	said := x.said(n3)
	if err := errors.Join(n2.Start(), n3.Start()); err != nil {
		return err
	}
	x.t.Logf("n2, which lacks the end, and n3 with %s are alone", x.how.name)
	if err := x.nobodyServes(ctx, n2); err != nil {
		return err
	}
	if err := n1.Start(); err != nil {
		return err
	}
	if err := x.member(ctx, n3); err != nil {
		return err
	}
	after, err := n3.Status(ctx)
	if err != nil {
		return err
	}
	was, is := identity(before), identity(after)
	if another := is != was; another != x.how.another || was == "" || is == "" {
		return fmt.Errorf("n3 was %q and is %q", was, is)
	}
	if !strings.Contains(x.said(n3)[len(said):], x.how.says) {
		return fmt.Errorf("n3 has no word of %q", x.how.says)
	}
	x.t.Log("n3 is whole again; now n1 goes, and what is read comes from n3 or was confirmed by it")
	if err := n1.end(syscall.SIGKILL, 10*time.Second); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := errors.Join(n2.WaitReady(limit), n3.WaitReady(limit)); err != nil {
		return err
	}
	wait(ctx, rebuiltLoad)
	if err := n1.Start(); err != nil {
		return err
	}
	return n1.WaitReady(limit)
}

// copyBack makes a copy while the node is stopped and starts the node once more, so that its peers know
// of a life that the copy does not.
func (x *exchange) copyBack(ctx context.Context, n3 *node) (func() error, error) {
	if err := n3.end(syscall.SIGTERM, 30*time.Second); err != nil {
		return nil, err
	}
	copied := filepath.Join(x.dir, "copy")
	if err := os.CopyFS(copied, os.DirFS(n3.Dir)); err != nil {
		return nil, err
	}
	if err := n3.Start(); err != nil {
		return nil, err
	}
	return func() error {
		if err := os.RemoveAll(n3.Dir); err != nil {
			return err
		}
		return os.Rename(copied, n3.Dir)
	}, x.member(ctx, n3)
}

// alone has n1 and n3 acknowledge what n2 does not hear of, and ends all three.
func (x *exchange) alone(ctx context.Context, n1, n2, n3 *node) error {
	if err := n2.end(syscall.SIGKILL, 10*time.Second); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := n1.WaitReady(limit); err != nil {
		return err
	}
	from, err := applied(ctx, n1)
	if err != nil {
		return err
	}
	wait(ctx, lonelyLoad)
	to, err := applied(ctx, n1)
	if err != nil {
		return err
	}
	const enough = 100 // entries: the test tests something only if n2 lacks them
	if to < from+enough {
		return fmt.Errorf("only %d entries were written while n2 was away", to-from)
	}
	for _, n := range []*node{n1, n3} { // both at once
		n.expectEnd()
		_ = n.Signal(syscall.SIGKILL)
	}
	return errors.Join(n1.end(syscall.SIGKILL, 10*time.Second), n3.end(syscall.SIGKILL, 10*time.Second))
}

// applied adds up what a node has applied in all partitions.
func applied(ctx context.Context, n *node) (sum uint64, err error) {
	s, err := n.Status(ctx)
	for _, p := range s.Partitions {
		sum += p.Applied
	}
	return sum, err
}

// said is the log of a node so far.
func (x *exchange) said(n *node) string {
	text, err := os.ReadFile(n.LogFile)
	if err != nil {
		x.t.Fatal(err)
	}
	return string(text)
}

// identity returns the identity of the node that answered, whatever its name is, "" if it does not list itself.
func identity(s cluster.Status) string {
	for _, row := range s.Nodes {
		if row.ID == s.Node || row.UUID == s.Node {
			return row.UUID
		}
	}
	return ""
}

// nobodyServes looks for a while whether a node gets a majority that there is not.
func (x *exchange) nobodyServes(ctx context.Context, n *node) error {
	limit, cancel := context.WithTimeout(ctx, lonelyLook)
	defer cancel()
	looks := 0
	for ; limit.Err() == nil; wait(limit, 50*time.Millisecond) {
		s, err := n.Status(ctx)
		if err != nil {
			continue
		}
		looks++
		for _, p := range s.Partitions {
			if p.Leader != "" {
				return fmt.Errorf("partition %d is led by %s in term %d without the one that has all", p.ID, p.Leader, p.Term)
			}
		}
	}
	if looks == 0 {
		return fmt.Errorf("%s never said what it knows", n.ID)
	}
	return nil
}

// member waits until a node is ready, votes in every partition, and the catalog wants the same.
func (x *exchange) member(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, memberLimit)
	defer cancel()
	began := time.Now()
	for {
		err := lacks(ctx, n)
		if err == nil {
			x.t.Logf("%s votes in every partition after %s", n.ID, time.Since(began).Round(time.Millisecond))
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s is not a member of every partition: %w", n.ID, err)
		}
		wait(ctx, 100*time.Millisecond)
	}
}

func lacks(ctx context.Context, n *node) error {
	if _, err := n.Get(ctx, "/readyz"); err != nil {
		return err
	}
	s, err := n.Status(ctx)
	if err != nil {
		return err
	}
	if len(s.Partitions) < 2 {
		return errors.New("no partition but the catalog is known")
	}
	for _, p := range s.Partitions {
		if !slices.Contains(p.Voters, s.Node) || p.Failure != "" || p.Applied == 0 || len(p.Differs) > 0 {
			return fmt.Errorf("%s in partition %+v", s.Node, p)
		}
	}
	return nil
}
