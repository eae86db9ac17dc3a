package partition

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// nothing is a machine that does nothing: what a benchmark with it costs is this room's.
type nothing struct{}

func (nothing) Apply(_ uint64, e *fsm.Entry) fsm.Result {
	return fsm.Result{Outcomes: make([]fsm.Outcome, len(e.Requests))}
}
func (nothing) Query(fsm.QueryRequest) fsm.Answer              { return fsm.Answer{} }
func (nothing) Capture() io.WriterTo                           { return newSmall().Capture() }
func (nothing) Restore(io.Reader) error                        { return nil }
func (nothing) Clocks() (wall fsm.Wall, lease fsm.Lease)       { return 0, 0 }
func (nothing) NextDeadline() (wall fsm.Wall, lease fsm.Lease) { return 0, 0 }
func (nothing) Deliverable(fsm.WaitKey) bool                   { return false }

// noBodies keeps nothing.
type noBodies struct{ *memBodies }

func (noBodies) Put(uint64, []byte, []replica.Span) error { return nil }

// BenchmarkPropose measures proposals of one 1 KiB message by many pumps to one partition.
func BenchmarkPropose(b *testing.B) {
	for _, bc := range []struct {
		name  string
		nodes int
		disk  bool
		pumps int
	}{
		{"1 node, memory, 1 pump", 1, false, 1},
		{"1 node, memory, 256 pumps", 1, false, 256},
		{"1 node, raft-wal, 1 pump", 1, true, 1},
		{"1 node, raft-wal, 256 pumps", 1, true, 256},
		{"3 nodes, memory, 1 pump", 3, false, 1},
		{"3 nodes, memory, 256 pumps", 3, false, 256},
		{"3 nodes, raft-wal, 1 pump", 3, true, 1},
		{"3 nodes, raft-wal, 256 pumps", 3, true, 256},
	} {
		b.Run(bc.name, func(b *testing.B) {
			r, done := benchReplica(b, bc.nodes, bc.disk)
			defer done()
			b.ReportAllocs()
			b.ResetTimer()
			runPumps(b, r, bc.pumps, func(req fsm.Request) error {
				_, err := r.Propose(context.Background(), req)
				return err
			})
		})
	}
}

// BenchmarkProposeElsewhere measures the same through a node that does not lead, without a network.
func BenchmarkProposeElsewhere(b *testing.B) {
	for _, pumps := range []int{1, 256} {
		b.Run(fmt.Sprintf("%d pumps", pumps), func(b *testing.B) {
			c, r, done := benchCluster(b, 3, false)
			defer done()
			via := c.nodes[c.others(r.Node())[0]]
			s := &sender{host: via.host, caller: via.port, members: func(fsm.PartitionID) []fsm.NodeID { return c.ids }}
			b.ReportAllocs()
			b.ResetTimer()
			runPumps(b, r, pumps, func(req fsm.Request) error {
				_, err := s.propose(context.Background(), 1, req, &attempts{}, nil)
				return err
			})
		})
	}
}

// runPumps proposes b.N messages by some pumps at a time; r leads.
func runPumps(b *testing.B, r *replica.Replica, pumps int, propose func(fsm.Request) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	body := make([]byte, 1024)
	before := r.Applied()
	var wg sync.WaitGroup
	for p := range pumps {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := uint64(1); left.Add(-1) >= 0; n++ {
				err := propose(fsm.Request{ID: reqID(uint64(p+1), n), Entity: 1,
					Command: &fsm.Enqueue{Messages: []fsm.Message{{Body: body}}}})
				if err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/float64(max(r.Applied()-before, 1)), "requests/entry")
}

// benchReplica opens a group and returns its leader.
func benchReplica(b *testing.B, nodes int, disk bool) (*replica.Replica, func()) {
	_, r, done := benchCluster(b, nodes, disk)
	return r, done
}

func benchCluster(b *testing.B, nodes int, disk bool) (*testCluster, *replica.Replica, func()) {
	c := newTestCluster(b, nodes)
	c.machine = func(fsm.PartitionID) replica.Machine { return nothing{} }
	for _, id := range c.ids {
		n := c.start(id)
		dir := b.TempDir()
		n.host.deps.Open = func(fsm.PartitionID) (replica.Stores, error) {
			s := newDisk().stores()
			s.Bodies = noBodies{newMemBodies()}
			if !disk {
				return s, nil
			}
			log, err := wal.Open(dir)
			if err != nil {
				return replica.Stores{}, err
			}
			stable, err := raftboltdb.NewBoltStore(dir + "/votes")
			if err != nil {
				return replica.Stores{}, err
			}
			s.Log, s.Stable = log, stable
			s.Close = func() error { _ = stable.Close(); return log.Close() }
			return s, nil
		}
	}
	for _, id := range c.ids {
		if err := c.nodes[id].host.Open(1, c.ids); err != nil {
			b.Fatal(err)
		}
	}
	r := c.leader(1)
	return c, r, c.close
}

var _ raft.LogStore = (*wal.WAL)(nil)
