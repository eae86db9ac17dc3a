package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

const (
	// trailing is how many entries of the log a replica keeps behind its snapshot (partition.Config).
	trailing = 1024
	// snapshotMB is how much log causes a snapshot (partition.Config).
	snapshotMB = 64
)

// RUL-25, S-226: the disk of one node after the other is wiped, until none is left of those that the messages were
// stored on. What came to the new disks is whole: an old message and a session state, which come with a snapshot, and
// new messages, whose parts come with the log too. Then each node serves them.
func TestLargeMessagesOutliveEveryDisk(t *testing.T) {
	t.Parallel()
	c := startThree(t)
	e := newEnv(t, c, false, 0)
	var stop context.CancelFunc
	e.ctx, stop = context.WithTimeout(t.Context(), 3*largeLimit)
	defer stop()
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(102_400))})
	state := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(102_400)), RequiresSession: to(true)})
	body := largeBody()
	want := sha256.Sum256(body)

	client := e.client(0)
	e.send(e.sender(client, state), inSession("s", "m"))
	session := e.accept(client, state, "s")
	e.must("set state", session.SetSessionState(e.ctx, body, nil))
	e.must("close", session.Close(e.ctx))
	s := e.sender(client, q)
	e.send(s, &azservicebus.Message{MessageID: to("old"), Body: body})
	for range trailing { // one after the other: each is an entry
		e.send(s, text("between"))
	}
	news := snapshotMB / *largeMB + 1
	for i := range news {
		e.send(s, &azservicebus.Message{MessageID: to(fmt.Sprint("new-", i)), Body: body})
	}
	for _, n := range c.Nodes {
		e.wipe(n)
	}

	for i := range c.Nodes {
		peeked, err := e.receiver(e.client(i), q, nil).PeekMessages(e.ctx, 1, nil)
		e.must("peek", err)
		e.check(len(peeked) == 1 && sha256.Sum256(peeked[0].Body) == want, "node %d shows %d messages", i, len(peeked))
	}
	session = e.accept(e.client(1), state, "s")
	got, err := session.GetSessionState(e.ctx, nil)
	e.must("get state", err)
	e.check(sha256.Sum256(got) == want, "the state of %d bytes is another one", len(got))
	r := e.receiver(e.client(2), q, nil)
	large := 0
	for seen := 0; seen < trailing+news+1; {
		some, err := r.ReceiveMessages(e.ctx, 100, nil)
		e.must("receive", err)
		for _, m := range some {
			if id := m.MessageID; id == "old" || len(m.Body) > 100 {
				e.check(sha256.Sum256(m.Body) == want, "%s of %d bytes is another one", id, len(m.Body))
				large++
			}
		}
		e.complete(r, some...)
		seen += len(some)
	}
	e.check(large == news+1, "%d large messages came, want %d", large, news+1)
	e.none(r)
}

// wipe kills a node, removes its disk and starts it. It waits until the node votes in every partition and has applied
// all that any node had.
func (e *env) wipe(n *cluster.Node) {
	e.Helper()
	began := time.Now()
	n.Kill()
	e.must("wipe "+n.ID, os.RemoveAll(n.Dir))
	e.must("start "+n.ID, n.Start())
	want := map[int]uint64{}
	for _, other := range e.cluster.Nodes {
		if s, err := e.statusOf(other); err == nil {
			for _, p := range s.Partitions {
				want[p.ID] = max(want[p.ID], p.Applied)
			}
		}
	}
	var lacks error
	for e.ctx.Err() == nil {
		if lacks = e.lacks(n, want); lacks == nil {
			files, _ := filepath.Glob(filepath.Join(n.Dir, "groups", "*", "*"))
			e.Logf("%s has everything after %v: %d files", n.ID, time.Since(began).Round(time.Millisecond), len(files))
			return
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
	e.Fatalf("%s lacks something: %v", n.ID, lacks)
}

// memberStatus is what a node says of itself as a member.
type memberStatus struct {
	Node       string
	Partitions []struct {
		ID      int
		Voters  []string
		Applied uint64
		Failure string
	}
}

func (e *env) statusOf(n *cluster.Node) (s memberStatus, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
	defer cancel()
	b, err := n.Get(ctx, "/api/cluster")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// lacks tells why a node is not a full member that has applied what it should, or why the one that had its place still
// votes: until that has gone, a partition that loses another node has no majority.
func (e *env) lacks(n *cluster.Node, want map[int]uint64) error {
	s, err := e.statusOf(n)
	if err != nil {
		return err
	}
	var alive []string
	for _, other := range e.cluster.Nodes {
		o, err := e.statusOf(other)
		if err != nil {
			return err
		}
		alive = append(alive, o.Node)
	}
	if len(s.Partitions) < max(2, len(want)) {
		return errors.New("partitions are not known")
	}
	for _, p := range s.Partitions {
		if dead := slices.IndexFunc(p.Voters, func(v string) bool { return !slices.Contains(alive, v) }); dead >= 0 {
			return fmt.Errorf("partition %d still has the vote of %s", p.ID, p.Voters[dead])
		}
		if !slices.Contains(p.Voters, s.Node) || p.Failure != "" || p.Applied < want[p.ID] {
			return fmt.Errorf("%s in partition %+v, want %d applied", s.Node, p, want[p.ID])
		}
	}
	return nil
}
