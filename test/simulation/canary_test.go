package simulation

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/check"
)

// canary runs a cluster in which nothing fails but the broker itself.
func canary(t *testing.T, edit func(*Config)) *Result {
	t.Helper()
	var out *Result
	_, err := bubble(t, func(t *testing.T) {
		cfg := configOf(1, 1)
		cfg.Dir, cfg.Log, cfg.Nodes, cfg.Partitions = t.TempDir(), io.Discard, 3, 2
		cfg.AllQueues, cfg.Forever, cfg.faults = true, false, nil
		edit(&cfg)
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		out = r
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

func caught(list []check.Violation) []string {
	var names []string
	for _, v := range list {
		if !slices.Contains(names, v.Invariant) {
			names = append(names, v.Invariant)
		}
	}
	return names
}

// When a majority is cut off for ever nothing can go on, and that is said.
func TestCanaryOfLiveness(t *testing.T) {
	_, err := bubble(t, func(t *testing.T) {
		cfg := configOf(1, 1)
		cfg.Dir, cfg.Log, cfg.Forever, cfg.Nodes = t.TempDir(), io.Discard, false, 3
		w, err := newWorld(cfg)
		defer w.close()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.serving(nil); err != nil {
			t.Fatalf("a healthy cluster: %v", err)
		}
		n := &nemesis{w: w, rng: w.rng()}
		n.isolate(w.machines()[0])
		n.isolate(w.machines()[1])
		time.Sleep(10 * time.Second)
		if err := w.serving(nil); err == nil || !strings.HasPrefix(err.Error(), "I26") {
			t.Errorf("a cluster without a majority: %v", err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// An image that is not read to its end, or not as it was written, is told.
func TestImagesAreReadBack(t *testing.T) {
	var image bytes.Buffer
	if _, err := fsm.New(1).Capture().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	if err := readable(image.Bytes(), fsm.New(1)); err != nil {
		t.Errorf("a good image: %v", err)
	}
	if err := readable(append(image.Bytes(), 0), fsm.New(1)); err == nil {
		t.Error("what stands behind an image was not told")
	}
	if err := readable(image.Bytes(), forgetful{fsm.New(1)}); err == nil {
		t.Error("a state that is not the one of the image was not told")
	}
}

// forgetful reads an image and is what it was before.
type forgetful struct{ *fsm.State }

func (f forgetful) Restore(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	f.State.Apply(1, &fsm.Entry{Wall: 1})
	return err
}

// Drawn settings are those that the library takes, for every seed.
func TestEverySeedHasAConfiguration(t *testing.T) {
	for seed := range uint64(2000) {
		c := configOf(seed, 1+int(seed%10))
		c.partition.Node = "n1"
		if err := c.partition.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(c.faults) < 3 || c.Partitions < 1 || c.SendEvery <= 0 {
			t.Fatalf("seed %d: %+v", seed, c)
		}
	}
}

// A broker that commits no sin is found innocent; each sin is caught by its checker from what clients
// saw alone.
func TestCanariesAreCaught(t *testing.T) {
	sins := check.Sins()
	if testing.Short() {
		sins = sins[:3]
	}
	for _, s := range sins {
		t.Run(s.Name, func(t *testing.T) {
			r := canary(t, func(c *Config) { c.Sin = &s })
			got := caught(check.CheckAll(r.History))
			if !slices.Contains(got, s.Invariant) {
				t.Errorf("a broker that %s is caught by %v, want %s (%v)", s.Name, got, s.Invariant, list(r.Coverage))
			}
			t.Log(strings.Join(got, " "))
		})
	}
	t.Run("answers about entities as they were", func(t *testing.T) {
		r := canary(t, func(c *Config) { c.OldNews = true })
		if got := caught(r.Violations); !slices.Equal(got, []string{"I21"}) {
			t.Errorf("caught by %v", got)
		}
	})
	t.Run("without sin", func(t *testing.T) {
		if r := canary(t, func(*Config) {}); len(r.Violations) != 0 {
			t.Errorf("%v", r.Violations)
		}
	})
}
