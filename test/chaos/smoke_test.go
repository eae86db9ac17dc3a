package main

import (
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/namespaces"
)

var seed = flag.Uint64("seed", 0, "of the smoke test; 0 draws one and prints it")

func testRand(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64() % 1_000_000 // by chance: the seed itself, which is printed
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// testLog writes lines into the log of a test.
type testLog struct{ t *testing.T }

// Write implements io.Writer.
func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = testLog{}

// TestSmoke kills and pauses nodes under load for a short while and judges what clients saw.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of real processes")
	}
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed: bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: testNetwork(), nodes: 3},
		schedule: schedule{total: 20 * time.Second, calm: 2 * time.Second, meet: true,
			hold:    [2]time.Duration{2 * time.Second, 4 * time.Second},
			rest:    [2]time.Duration{2 * time.Second, 3 * time.Second},
			allowed: map[string]bool{"kill": true, "kill the busiest": true, "pause": true, "pause the busiest": true}}}
	o := judged(t, cfg)
	if err := o.counts(); err != nil {
		t.Error(err)
	}
	findsPlants(t, o)
}

// TestOneKillAndOnePause is the short form of a run: what make test does every time.
func TestOneKillAndOnePause(t *testing.T) {
	cfg := runConfig{seed: testRand(t).Uint64() % 1_000_000, log: testLog{t},
		bed: bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: testNetwork(), nodes: 3},
		schedule: schedule{calm: time.Second, meet: true,
			hold:    [2]time.Duration{3 * time.Second, 4 * time.Second},
			rest:    [2]time.Duration{time.Second, 2 * time.Second},
			exactly: []combination{{"kill the busiest"}, {"pause the busiest"}}}}
	o := judged(t, cfg)
	if err := o.counts(); err != nil {
		t.Error(err)
	}
	findsPlants(t, o)
}

// TestNewAddresses gives nodes other addresses under the same names, as Kubernetes does with pods:
// one after the other under load, then all at once. The nodes join by name and advertise their
// address.
func TestNewAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of real processes")
	}
	if !namespaces.Inside() {
		t.Skip("no network namespaces: ", noNamespaces())
	}
	names := newNames(t)
	cfg := runConfig{seed: 1, log: testLog{t},
		bed:      bedConfig{dir: t.ArtifactDir(), binary: binary(t), network: overBridge, nodes: 3, names: names.of},
		schedule: schedule{calm: 2 * time.Second}}
	next := 100
	move := func(t *testing.T, b *bed, n *node) {
		t.Helper()
		next++
		names.set(t, n, nodeNetwork+strconv.Itoa(next))
		if err := b.rename(cfg.bed, n, nodeNetwork+strconv.Itoa(next)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.schedule.instead = func(ctx context.Context, b *bed) error {
		ready := func(n *node) error {
			limit, cancel := context.WithTimeout(ctx, readyLimit)
			defer cancel()
			return n.WaitReady(limit)
		}
		for _, n := range b.nodes { // as a rolling update does
			if err := n.end(15, 30*time.Second); err != nil {
				return err
			}
			move(t, b, n)
			if err := n.Start(); err != nil {
				return err
			}
			if err := ready(n); err != nil {
				return err
			}
			t.Logf("%s is ready at %s", n.ID, n.ip)
		}
		for _, n := range b.nodes { // as a power cut does
			if err := n.end(9, 10*time.Second); err != nil {
				return err
			}
			move(t, b, n)
		}
		for _, n := range b.nodes {
			if err := n.Start(); err != nil {
				return err
			}
		}
		for _, n := range b.nodes {
			if err := ready(n); err != nil {
				return err
			}
			t.Logf("%s is ready at %s", n.ID, n.ip)
		}
		return nil
	}
	busy(t, judged(t, cfg))
}

// names is a hosts file that only these namespaces see.
type names struct {
	file string
	ips  map[int]string
}

func newNames(t *testing.T) *names {
	t.Helper()
	n := &names{file: t.TempDir() + "/hosts", ips: map[int]string{}}
	n.write(t)
	if err := namespaces.Run("mount", "--bind", n.file, "/etc/hosts"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Run("umount", "/etc/hosts"); err != nil {
			t.Error(err)
		}
	})
	for i := 1; i <= 3; i++ {
		n.ips[i] = nodeNetwork + strconv.Itoa(i)
	}
	n.write(t)
	return n
}

func (n *names) of(number int) string { return "busbar-" + strconv.Itoa(number) + ".busbar-peers" }

func (n *names) set(t *testing.T, of *node, ip string) {
	t.Helper()
	n.ips[of.number] = ip
	n.write(t)
}

// write changes the file in place: it is mounted, so another one of that name would not be seen.
func (n *names) write(t *testing.T) {
	t.Helper()
	text := "127.0.0.1 localhost\n"
	for i, ip := range n.ips {
		text += ip + " " + n.of(i) + "\n"
	}
	if err := os.WriteFile(n.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
