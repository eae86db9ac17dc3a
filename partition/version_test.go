package partition

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// upgradable returns a cluster of which every node says to know versions up to fsm.VersionPlacement, as one does whose
// nodes run the release before, and that has this version.
func upgradable(t *testing.T) *brokers {
	b := newBrokers(t, 3)
	for _, id := range b.ids {
		b.knows(id, fsm.VersionPlacement)
	}
	b.wantVersion("n1", fsm.VersionPlacement)
	return b
}

func (b *brokers) finalize(via fsm.NodeID) (fsm.Version, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	return b.all[via].dir.Finalize(ctx)
}

// A cluster version rises by the word of an operator, when every node knows it and has told its data directory.
func TestAnUpgradeIsFinalized(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := upgradable(t)
		defer b.close()
		b.knows("n1", fsm.NewestVersion)
		b.knows("n2", fsm.NewestVersion)
		if v, err := b.finalize("n1"); !errors.Is(err, ErrNotFinalized) || v != fsm.VersionPlacement ||
			!strings.Contains(err.Error(), "node n3") || !strings.Contains(err.Error(), "up to 0.0-1: run release 0.1") {
			t.Errorf("with a node of the release before: %s, %v", v, err)
		}
		b.knows("n3", fsm.NewestVersion)
		time.Sleep(5 * time.Minute)
		if v := b.all["n1"].host.ClusterVersion(); v != fsm.VersionPlacement {
			t.Errorf("cluster version %s, and no operator has asked for it", v)
		}
		b.nodes["n2"].refuseVersions(errors.New("no room"))
		if _, err := b.finalize("n1"); !errors.Is(err, ErrNotFinalized) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("with a data directory that cannot be told: %v", err)
		}
		b.nodes["n2"].refuseVersions(nil)
		if v := b.all["n1"].dir.View().ClusterVersion(); v != fsm.VersionPlacement {
			t.Errorf("cluster version %s, and a data directory does not know it", v)
		}
		if v, err := b.finalize("n3"); v != fsm.NewestVersion || err != nil {
			t.Fatalf("%s, %v", v, err)
		}
		for _, id := range b.ids {
			if kept := b.nodes[id].keptVersion(); kept != fsm.NewestVersion {
				t.Errorf("the data directory of %s was told %s", id, kept)
			}
			b.wantVersion(id, fsm.NewestVersion)
		}
		if v, err := b.finalize("n1"); v != fsm.NewestVersion || err != nil {
			t.Errorf("once more: %s, %v", v, err)
		}
	})
}

// A node that does not answer may run any program, so nothing is finalized until it is there or forgotten.
func TestASilentNodeKeepsTheClusterVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := upgradable(t)
		defer b.close()
		for _, id := range b.ids {
			b.knows(id, fsm.NewestVersion)
		}
		b.kill("n3")
		if v, err := b.finalize("n1"); !errors.Is(err, ErrNotFinalized) || v != fsm.VersionPlacement ||
			!strings.Contains(err.Error(), "node n3 (n3) does not answer") {
			t.Errorf("%s, %v", v, err)
		}
		b.restart("n3", 900)
		b.until("it is finalized", func() string {
			if _, err := b.finalize("n1"); err != nil {
				return err.Error()
			}
			return ""
		})
		b.wantVersion("n3", fsm.NewestVersion)
	})
}

// With the setting the leader of the catalog finalizes by itself, when the last node knows the version.
func TestAnUpgradeIsFinalizedByItself(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		for _, id := range b.ids {
			b.knows(id, fsm.VersionPlacement)
		}
		b.wantVersion("n1", fsm.VersionPlacement)
		for i, id := range b.ids {
			b.kill(id)
			b.finalizes = true
			b.restart(id, fsm.Incarnation(700+i))
			if i < len(b.ids)-1 {
				time.Sleep(2 * time.Minute)
				if v := b.all[id].host.ClusterVersion(); v != fsm.VersionPlacement {
					t.Fatalf("cluster version %s after %d of %d nodes", v, i+1, len(b.ids))
				}
			}
		}
		for _, id := range b.ids {
			b.wantVersion(id, fsm.NewestVersion)
			if kept := b.nodes[id].keptVersion(); kept != fsm.NewestVersion {
				t.Errorf("the data directory of %s was told %s", id, kept)
			}
		}
	})
}

// What a node of the cluster may not know gets into no log: neither by way of a router nor at the leader itself.
func TestWhatIsTooNewDoesNotEnterTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.knows("n2", fsm.VersionFirst)
		b.createQueue(t.Context(), "n1", queue("orders", false))
		wish := &catalog.Change{Wish: &catalog.NodeWish{ID: "n1", Wish: catalog.Drain}}
		leader := b.leader(fsm.CatalogPartition)
		for name, propose := range map[string]func() error{
			"a directory": func() error { _, err := b.all["n3"].dir.change(t.Context(), wish); return err },
			"a leader": func() error {
				_, err := leader.Propose(t.Context(), fsm.Request{Command: wish.Command()})
				return err
			},
		} {
			began := time.Now()
			err := propose()
			var version *fsm.VersionError
			if !errors.As(err, &version) || version.Needs != fsm.VersionPlacement || version.Has != fsm.VersionFirst ||
				!strings.Contains(version.What, "wish") {
				t.Errorf("%s: %v", name, err)
			}
			if time.Since(began) > time.Second {
				t.Errorf("%s: refused after %v", name, time.Since(began))
			}
		}
		if n, _ := b.all["n1"].dir.View().Node("n1"); n.Wish != catalog.Serve {
			t.Errorf("the catalog has the wish %q", n.Wish)
		}
	})
}

// calls notes which kinds of calls were handled and made.
type calls struct {
	handled map[uint8]bool
	made    []uint8
}

func (c *calls) Handle(kind uint8, _ func(context.Context, fsm.NodeID, []byte) ([]byte, error)) {
	c.handled[kind] = true
}

func (c *calls) HandleBegun(kind uint8, _ func(fsm.NodeID, []byte, func(func() ([]byte, error))) (func(), bool)) {
	c.handled[kind] = true
}

func (c *calls) Begin(_ fsm.NodeID, kind uint8, _ []byte, _ func([]byte, error)) (func(error), bool) {
	c.made = append(c.made, kind)
	return nil, true
}

func (c *calls) HandleStream(kind uint8, _ func(context.Context, fsm.NodeID, []byte, io.Reader) ([]byte, error)) {
	c.handled[kind] = true
}

func (c *calls) Call(_ context.Context, _ fsm.NodeID, kind uint8, _ []byte) ([]byte, error) {
	c.made = append(c.made, kind)
	return nil, nil
}

func (c *calls) CallStream(_ context.Context, _ fsm.NodeID, kind uint8, _ []byte, _ io.Reader) ([]byte, error) {
	c.made = append(c.made, kind)
	return nil, nil
}

// A call between nodes that was added and has no cluster version is found here.
func TestEachCallHasAVersion(t *testing.T) {
	c := &calls{handled: map[uint8]bool{}}
	(&Host{deps: Deps{Caller: c}}).handle()
	known := map[uint8]string{}
	for _, call := range fsm.Calls() {
		if known[call.Kind] = call.Name; call.Kind < 64 && !c.handled[call.Kind] {
			t.Errorf("nobody handles call %d, %s", call.Kind, call.Name)
		}
	}
	for kind := range c.handled {
		if known[kind] == "" {
			t.Errorf("call %d has no row in fsm/versions.go, so nobody knows which nodes know it", kind)
		}
	}
}

// A call that a node of the cluster may not know is not made.
func TestCallsWaitForTheClusterVersion(t *testing.T) {
	c := &calls{}
	h := &Host{}
	v := newVersionedCaller(c, h)
	v.since[KindClock], v.since[KindSnapshot] = 105, 105
	_, err := v.Call(t.Context(), "n2", KindClock, nil)
	_, stream := v.CallStream(t.Context(), "n2", KindSnapshot, nil, nil)
	for _, err := range []error{err, stream} {
		if !errors.Is(err, fsm.ErrVersion) || !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	}
	_, _ = v.Call(t.Context(), "n2", KindStatus, nil)
	h.version.known.Store(105)
	_, _ = v.Call(t.Context(), "n2", KindClock, nil)
	_, _ = v.CallStream(t.Context(), "n2", KindSnapshot, nil, nil)
	if got := string(c.made); got != string([]uint8{KindStatus, KindClock, KindSnapshot}) {
		t.Errorf("calls %v", c.made)
	}
}
