package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
)

func partitionedQueue(t *testing.T, n *node, name string) *fsm.Descriptor {
	t.Helper()
	d, err := n.directory.Create(t.Context(), fsm.Descriptor{Kind: fsm.Queue, Name: name, Partitioned: true, LockDuration: 60_000,
		MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited, DuplicateWindow: 600_000,
		AutoDeleteOnIdle: fsm.Unlimited})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// alarmOf returns what a check of a node says.
func alarmOf(t *testing.T, n *node, name string) error {
	t.Helper()
	all := n.alarmChecks()
	i := slices.IndexFunc(all, func(c partition.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check is called %s: %v", name, all)
	}
	return all[i].Err
}

// A reload with a higher number adds partitions, which new entities use; what is there stays where it is. A lower number
// is refused by a reload, and an alarm of a node that is started with it.
func TestPartitionsAreAddedAndNeverTakenAway(t *testing.T) {
	dir := t.TempDir()
	r := openReloadingIn(t, dir, rootPolicy+"partitions: 2\n")
	old := partitionedQueue(t, r.node, "old")
	if done := r.mustReload(t, rootPolicy+"partitions: 5\n"); !slices.Equal(done.Changed, []string{"partitions"}) {
		t.Errorf("changed %v", done.Changed)
	}
	for len(r.directory.View().Groups()) < 5 || r.node.host.Ready(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	fresh := partitionedQueue(t, r.node, "fresh")
	if now, err := r.directory.Get(t.Context(), "old"); err != nil || !slices.Equal(now.Partitions, old.Partitions) ||
		len(old.Partitions) != 2 || len(fresh.Partitions) != 5 {
		t.Errorf("shares of old %v, once %v; of fresh %v; %v", now.Partitions, old.Partitions, fresh.Partitions, err)
	}
	for share := range fresh.Partitions {
		id := fsm.RequestID{Node: r.incarnation, Pump: 1 << 40, Counter: uint64(share + 1)}
		k := fsm.Key{Entity: fresh.ID, By: fsm.ByShare, Share: uint16(share)}
		o, err := r.router.Propose(t.Context(), id, k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}})
		if err != nil || o.Refusal != fsm.None || o.Numbers[0].Prefix() != fresh.Partitions[share] {
			t.Errorf("share %d: %+v, %v", share, o, err)
		}
	}
	const why = "partitions is 3, and the cluster has 5"
	if status, answer := r.write(t, rootPolicy+"partitions: 3\n"); status != http.StatusUnprocessableEntity || !strings.Contains(answer, why) {
		t.Errorf("a lower number: %d %s", status, answer)
	}
	if err := alarmOf(t, r.node, checkPartitions); err != nil {
		t.Errorf("a refused reload has changed the setting: %v", err)
	}
	for _, c := range []struct {
		is   Config
		want string
	}{
		{Config{Partitions: 3, partitionsSet: true}, why},
		{Config{Partitions: 5, partitionsSet: true}, ""},
		{Config{Partitions: 9, partitionsSet: true}, ""},
		{Config{Partitions: defaultPartitions}, ""},
	} {
		r.reloader.running.Store(&c.is) // as a start with it
		err := alarmOf(t, r.node, checkPartitions)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("started with %d: %v, want %q", c.is.Partitions, err, c.want)
		}
	}
}

// A number that nobody chose is no wish, wherever a wish may stand.
func TestWhoSaysHowManyPartitions(t *testing.T) {
	base := "data-dir: /d\nroot-key: k\n"
	for _, c := range []struct {
		name, file string
		flag       []string
		env        map[string]string
		want       int
	}{
		{"nobody", base, nil, nil, 0},
		{"the file", base + "partitions: 6\n", nil, nil, 6},
		{"the environment", base, nil, map[string]string{"BUSBAR_PARTITIONS": "6"}, 6},
		{"a flag", base + "partitions: 3\n", []string{"9"}, nil, 9},
	} {
		got, err := load(writeConfig(t, c.file), map[string][]string{"partitions": c.flag}, environment(c.env))
		if err != nil || got.wantedPartitions() != c.want {
			t.Errorf("%s: %d, %v, want %d", c.name, got.wantedPartitions(), err, c.want)
		}
	}
}
