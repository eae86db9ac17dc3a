package partition

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

func TestRoomIsEnteredAndLeftWithSlack(t *testing.T) {
	const gib = 1 << 30
	room := Defaults().Disk
	tests := []struct {
		name        string
		was         replica.DiskLevel
		free, total uint64
		want        replica.DiskLevel
	}{
		{"a large disk with a tenth free", replica.RoomForAll, 100 * gib, 1000 * gib, replica.RoomForAll},
		{"a large disk below the floor", replica.RoomForAll, 2*gib - 1, 1000 * gib, replica.RoomForSettling},
		{"a small disk with a fifth free", replica.RoomForAll, gib / 5, gib, replica.RoomForAll},
		{"a small disk below its share", replica.RoomForAll, gib / 7, gib, replica.RoomForSettling},
		{"just above again", replica.RoomForSettling, gib / 6, gib, replica.RoomForSettling},
		{"well above again", replica.RoomForSettling, gib / 5, gib, replica.RoomForAll},
		{"nearly nothing", replica.RoomForAll, gib / 40, gib, replica.RoomForDeletions},
		{"a little more", replica.RoomForDeletions, gib / 31, gib, replica.RoomForDeletions},
		{"enough to settle", replica.RoomForDeletions, gib / 20, gib, replica.RoomForSettling},
		{"nothing at all", replica.RoomForSettling, 0, gib, replica.RoomForDeletions},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := room.level(tt.was, tt.free, tt.total); got != tt.want {
				t.Errorf("level %d, want %d", got, tt.want)
			}
		})
	}
}

// memDisk is a disk of a gibibyte.
type memDisk struct {
	mu      sync.Mutex
	free    uint64
	ballast bool
	calls   int
}

func (d *memDisk) Space() (free, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, 1 << 30, nil
}

func (d *memDisk) Ballast(hold bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ballast = hold
	d.calls++
	return nil
}

// S-230: what would fill the disk is refused before it gets into the log, in the order in which it can
// be spared; what was accepted can always be taken out.
func TestFullDiskRefusesPublishesBeforeSettlements(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.disk = &memDisk{free: 1 << 30}
		c.open(1)
		defer c.close()
		r := c.leader(1)
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "one", "two", "three")); err != nil {
			t.Fatal(err)
		}
		state := fsm.Request{Entity: 1, Command: &fsm.SetSessionState{}}
		drop := fsm.Request{Entity: 9, Command: &fsm.DropEntity{}}
		forget := fsm.Request{Command: (&catalog.Change{Delete: &catalog.Deletion{ID: 9}}).Command()}
		create := fsm.Request{Command: (&catalog.Change{Create: &fsm.Descriptor{}}).Command()}
		counter := uint64(1)
		steps := []struct {
			name                    string
			free                    uint64
			publish, settle, remove bool
			quiet, ballast          bool
		}{
			{name: "plenty", free: 1 << 29, publish: true, settle: true, remove: true, quiet: true, ballast: true},
			{name: "a tenth", free: 1 << 30 / 10, settle: true, remove: true, ballast: true},
			{name: "a hundredth", free: 1 << 30 / 100, remove: true},
			{name: "a tenth again", free: 1 << 30 / 10, settle: true, remove: true},
			{name: "plenty again", free: 1 << 29, publish: true, settle: true, remove: true, quiet: true, ballast: true},
		}
		for _, s := range steps {
			c.disk.mu.Lock()
			c.disk.free = s.free
			c.disk.mu.Unlock()
			time.Sleep(2 * ballastEvery)
			last := r.Status().Last
			try := func(what string, q fsm.Request, want bool) {
				t.Helper()
				counter++
				q.ID = reqID(1, counter)
				_, err := r.Propose(t.Context(), q)
				if (err == nil) != want || err != nil && !errors.Is(err, fsm.ErrBusy) {
					t.Errorf("%s: %s: %v, want taken: %v", s.name, what, err, want)
				}
			}
			try("publish", enqueue(reqID(0, 0), "x"), s.publish)
			try("state of a session", state, s.publish)
			try("lock", lock(reqID(0, 0), 1, 0), s.settle)
			if !s.publish && !s.settle && r.Status().Last != last {
				t.Errorf("%s: what was refused is in the log", s.name)
			}
			try("deletion", drop, s.remove)
			try("deletion in the catalog", forget, s.remove)
			try("creation in the catalog", create, s.settle)
			// Receivers, who make room, still find the node.
			if err := c.nodes["n1"].host.Ready(t.Context()); err != nil {
				t.Errorf("%s: ready: %v", s.name, err)
			}
			if err := alarm(t, c.nodes["n1"].host, CheckDiskSpace); (err == nil) != s.quiet {
				t.Errorf("%s: alarm: %v", s.name, err)
			}
			c.disk.mu.Lock()
			if c.disk.ballast != s.ballast {
				t.Errorf("%s: ballast held: %v", s.name, c.disk.ballast)
			}
			c.disk.mu.Unlock()
		}
		if c.disk.calls != 3 {
			t.Errorf("ballast was moved %d times", c.disk.calls)
		}
	})
}

// When the alarm has ended, messages are stored. A leader that believes its voters' disks full refuses as one whose own
// disk is, so it raises the alarm as well, and it learns of room a look later than the disk is measured.
func TestTheAlarmOfTheDiskEndsWhenMessagesAreStored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 0)
		b.disk, b.ids = &memDisk{free: 1 << 30}, []fsm.NodeID{"n1"}
		b.cfg = func(c *Config) { c.Incarnation = 100 }
		n := b.join("n1", b.ids)
		defer b.close()
		d := b.createQueue(t.Context(), "n1", queue("orders", false))
		measured := func(free uint64, full bool) {
			b.disk.mu.Lock()
			b.disk.free = free
			b.disk.mu.Unlock()
			for (alarm(t, n.host, CheckDiskSpace) != nil) != full {
				time.Sleep(10 * time.Millisecond)
			}
		}
		for i := range 20 {
			measured(1<<30/10, true)
			time.Sleep(3*time.Second + time.Duration(i)*97*time.Millisecond) // the leader has asked its voters
			measured(1<<29, false)
			sent := fsm.Request{ID: reqOf(0, 1, i+1), Entity: d.ID, Command: &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}}}
			if _, err := n.host.Replica(d.Partitions[0]).Propose(t.Context(), sent); err != nil {
				t.Errorf("round %d: the alarm has ended, and a message is refused: %v", i, err)
			}
		}
	})
}

// Between two looks at a small disk no more is stored than half of what is kept free leaves room for.
func TestFastPublisherDoesNotOvertakeTheLookAtTheDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.disk = &memDisk{free: 1 << 30 / 5}
		c.open(1)
		defer c.close()
		r := c.leader(1)
		stored := 0
		body := make([]byte, 1<<20)
		for i := range uint64(1000) {
			_, err := r.Propose(t.Context(), enqueue(reqID(1, i+1), string(body)))
			if errors.Is(err, fsm.ErrBusy) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			stored += len(body)
		}
		cfg := Defaults()
		room := cfg.Disk.allowance(1<<30/5, 1<<30)
		const storedTimes = 3 // in the log, in the bodies, and in a segment of either that is taken ahead
		if stored == 0 || int64(stored*storedTimes) > room {
			t.Errorf("%d bytes stored with room for %d", stored, room)
		}
		if _, err := r.Propose(t.Context(), lock(reqID(2, 1), 1, 0)); err != nil {
			t.Errorf("lock: %v", err)
		}
		time.Sleep(2 * watchdogEvery)
		if _, err := r.Propose(t.Context(), enqueue(reqID(3, 1), "x")); err != nil {
			t.Errorf("after the next look: %v", err)
		}
	})
}

// Without snapshots what was settled, or deleted, on a full disk would stay where it is.
func TestFullDiskIsCleanedBySnapshots(t *testing.T) {
	for name, free := range map[string]uint64{"what is settled makes room": 1 << 30 / 10, "what is deleted makes room": 1 << 30 / 50} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { cleanedBySnapshots(t, free) })
		})
	}
}

func cleanedBySnapshots(t *testing.T, free uint64) {
	c := newTestCluster(t, 1)
	c.disk = &memDisk{free: 1 << 29}
	c.open(1)
	defer c.close()
	r := c.leader(1)
	taken := func() (index uint64) {
		if metas, err := c.nodes["n1"].disks[1].snaps.List(); err == nil && len(metas) > 0 {
			index = metas[0].Index
		}
		return index
	}
	work := func() {
		for range 12 {
			_ = r.Barrier(t.Context(), 0)
			time.Sleep(10 * time.Second)
		}
	}
	work()
	if taken() != 0 {
		t.Error("a snapshot was taken without need")
	}
	c.disk.mu.Lock()
	c.disk.free = free
	c.disk.mu.Unlock()
	work()
	first := taken()
	work()
	if second := taken(); first == 0 || second <= first {
		t.Errorf("snapshots at %d and %d", first, second)
	}
}

// A disk that turns read-only is that of the whole node: leaderships leave that have nothing to write, and
// what is opened later, because the disk takes writes again, is left alone.
func TestReadOnlyDiskIsThatOfAllReplicas(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.open(2)
		idle := c.leader(2)
		n := c.nodes[idle.Node()]
		time.Sleep(3 * time.Second)
		busy := n.host.Replica(1)
		n.disks[1].log.set(func(l *faultyLog) {
			l.err = &fs.PathError{Op: "write", Path: "log", Err: syscall.EROFS}
		})
		if _, err := c.sendVia(t.Context(), n.id, enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		if next := c.leader(2, n.id); next == nil || idle.Leading() {
			t.Fatal("the idle partition is led on a read-only disk")
		}
		for _, r := range []*replica.Replica{busy, idle} {
			if err := r.Failure(); !errors.Is(err, syscall.EROFS) {
				t.Errorf("partition %d: %v", r.ID(), err)
			}
		}
		n.disks[1].log.set(func(l *faultyLog) { l.err = nil })
		if err := n.host.rebuild(2, 100); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if r := n.host.Replica(2); r == idle || r.Failure() != nil {
			t.Errorf("the new replica: %+v", r.Status())
		}
	})
}

// S-300, S-297: a group whose replicas all ran out of disk serves again, with all that was
// acknowledged, once there is room: nobody is left to rebuild them.
func TestGroupThatRanOutOfDiskServesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.disk = &memDisk{free: 1 << 30}
		c.open(1)
		defer c.close()
		r := c.leader(1)
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "kept")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // every replica has it
		room := func(free uint64, err error) {
			c.disk.mu.Lock()
			c.disk.free = free
			c.disk.mu.Unlock()
			for _, n := range c.nodes {
				n.mu.Lock() // a replica may be rebuilt
				n.disks[1].log.set(func(l *faultyLog) { l.err = err })
				n.mu.Unlock()
			}
		}
		// Somebody else fills the disk at once: the look at it comes too late.
		room(0, &fs.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC})
		if _, err := r.Propose(shortly(t, 5*time.Second), enqueue(reqID(2, 1), "lost")); !errors.Is(err, fsm.ErrUnknown) &&
			!errors.Is(err, fsm.ErrUnavailable) && !errors.Is(err, fsm.ErrNotLeader) {
			t.Fatalf("without a disk: %v, want an error after which a client asks again", err)
		}
		for range 3 { // whoever is elected next fails as well
			time.Sleep(20 * time.Second)
		}
		failed := 0
		for _, n := range c.nodes {
			if n.host.Replica(1).Starved() != nil {
				failed++
			}
		}
		if failed < 2 {
			t.Fatalf("%d replicas failed: the test shows nothing", failed)
		}
		// The ballast came back: too little for messages, enough to delete what takes the room.
		room(16<<20, nil)
		time.Sleep(time.Minute)
		r = c.leader(1)
		if _, err := r.Propose(t.Context(), fsm.Request{ID: reqID(4, 1), Entity: 9, Command: &fsm.DropEntity{}}); err != nil {
			t.Errorf("a deletion with what the ballast gave: %v", err)
		}
		if _, err := r.Propose(t.Context(), enqueue(reqID(5, 1), "more")); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("a message with what the ballast gave: %v", err)
		}
		room(1<<30, nil)
		time.Sleep(time.Minute)
		o, err := c.leader(1).Propose(t.Context(), lock(reqID(3, 1), 10, 0))
		if err != nil || len(o.Locked) == 0 || string(o.Locked[0].Body) != "kept" {
			t.Errorf("after the disk was freed: %+v, %v", o, err)
		}
	})
}

// F1: a group whose nodes all ran out of descriptors serves again within seconds once there are some, with all that
// was acknowledged. Its replicas fail, and cannot be opened anew meanwhile.
func TestGroupThatRanOutOfDescriptorsServesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.open(1)
		defer c.close()
		r := c.leader(1)
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "kept")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // every replica has it
		taken := func(err error) {
			for _, n := range c.nodes {
				n.mu.Lock()
				n.disks[1].damaged = err // of the next opening
				n.mu.Unlock()
				n.disks[1].log.set(func(l *faultyLog) { l.err = err })
			}
		}
		taken(&fs.PathError{Op: "open", Path: "00000000000000000002.wal", Err: syscall.EMFILE})
		if _, err := r.Propose(shortly(t, 5*time.Second), enqueue(reqID(2, 1), "lost")); err == nil {
			t.Fatal("acknowledged without a log")
		}
		time.Sleep(time.Minute) // whoever is elected next fails as well, and nobody can be opened
		unopened := 0
		for _, n := range c.nodes {
			if i := slices.IndexFunc(n.host.Status(), func(s replica.Status) bool { return s.Partition == 1 && s.Broken }); i >= 0 {
				unopened++
			}
		}
		if unopened < 2 {
			t.Fatalf("%d replicas cannot be opened: the test shows nothing", unopened)
		}
		taken(nil)
		time.Sleep(10 * time.Second)
		o, err := c.leader(1).Propose(shortly(t, time.Second), lock(reqID(3, 1), 10, 0))
		if err != nil || len(o.Locked) == 0 || string(o.Locked[0].Body) != "kept" {
			t.Errorf("after descriptors came back: %+v, %v", o, err)
		}
	})
}
