package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/busbar-mq/busbar/fsm"
)

// The baseline of replication sends the entries of a cycle through hashicorp/raft and raft-wal, fsynced on a
// majority. Its state machine does nothing, and one entry is in flight. No broker over this library can undercut the
// cost of a message here; the rest is ours.

// baselineBatch is how many messages one entry of the baseline stores, locks and settles, at most:
// about what a proposer packs into 256 KiB.
const baselineBatch = 200

// measureRaft measures n voters in this process, over loopback, in a directory of their own.
func measureRaft(ctx context.Context, cfg *loadConfig, n int) (*report, error) {
	dir, err := os.MkdirTemp("", "busbar-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	g := &raftGroup{}
	defer g.close()
	if err := g.open(dir, n); err != nil {
		return nil, err
	}
	leader, err := g.leader(ctx)
	if err != nil {
		return nil, err
	}
	batch := min(baselineBatch, max(1, cfg.InFlight), max(1, 256<<10/cfg.Size))
	one := *cfg
	one.PIDs = []int{os.Getpid()}
	r := &measurement{cfg: &one, start: time.Now()}
	entry := baselineEntry(batch, cfg.Size)
	var entries uint64
	round := func(until time.Time) error {
		for time.Now().Before(until) && ctx.Err() == nil {
			start := time.Now()
			data := append([]byte(nil), entry...) // raft keeps what it is given
			if err := leader.Apply(data, 0).Error(); err != nil {
				return fmt.Errorf("apply: %w", err)
			}
			entries++
			r.sent.Add(uint64(batch))
			r.received.Add(uint64(batch))
			r.settled.Add(uint64(batch))
			if r.measuring.Load() {
				r.confirm.record(time.Since(start))
			}
		}
		return ctx.Err()
	}
	if err := round(time.Now().Add(cfg.Warmup)); err != nil {
		return nil, err
	}
	r.measuring.Store(true)
	entries = 0
	from, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	if err := round(time.Now().Add(cfg.Duration)); err != nil {
		return nil, err
	}
	to, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	report := newReport(&one, from, to)
	report.fill(r)
	report.Entries = float64(entries) / report.Seconds
	return report, nil
}

// baselineEntry encodes an entry as a proposer would: messages stored, a lock for them, and the
// settlements of those before.
func baselineEntry(batch, size int) []byte {
	e := &fsm.Entry{Wall: 1, Lease: 1, Epoch: 1}
	_, _ = rand.Read(e.Seed[:]) // never fails
	id := fsm.RequestID{Node: 1, Pump: 1, Counter: 1}
	sent, settled := &fsm.Enqueue{}, &fsm.Settle{}
	for i := range batch {
		body := make([]byte, size)
		_, _ = rand.Read(body)
		sent.Messages = append(sent.Messages, fsm.Message{Body: body})
		var token fsm.LockToken
		_, _ = rand.Read(token[:])
		settled.Items = append(settled.Items, fsm.SettleItem{Seq: fsm.SequenceNumber(i + 1),
			Token: token, Verdict: fsm.Complete})
	}
	for _, c := range []fsm.Command{sent, &fsm.Lock{Max: uint32(batch), MaxBytes: 1 << 20}, settled} {
		e.Requests = append(e.Requests, fsm.Request{ID: id, Entity: 1, Command: c})
	}
	return fsm.AppendEntry(nil, e)
}

// raftGroup is a group of voters in this process.
type raftGroup struct {
	rafts   []*raft.Raft
	closers []io.Closer
}

func (g *raftGroup) open(dir string, n int) error {
	var members raft.Configuration
	var transports []*raft.NetworkTransport
	for i := range n {
		t, err := raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 3, 10*time.Second, hclog.NewNullLogger())
		if err != nil {
			return err
		}
		g.closers = append(g.closers, t)
		transports = append(transports, t)
		members.Servers = append(members.Servers, raft.Server{
			ID: raft.ServerID(fmt.Sprintf("n%d", i)), Address: t.LocalAddr()})
	}
	for i := range n {
		path := filepath.Join(dir, string(members.Servers[i].ID))
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		log, err := wal.Open(path)
		if err != nil {
			return err
		}
		g.closers = append(g.closers, log)
		c := raft.DefaultConfig()
		c.LocalID, c.Logger = members.Servers[i].ID, hclog.NewNullLogger()
		c.NoLegacyTelemetry, c.MaxAppendEntries = true, 256
		// Failover is not measured: a leader that a busy machine keeps waiting for a second stays.
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = patience, patience, patience
		cache, err := raft.NewLogCache(64, log)
		if err != nil {
			return err
		}
		snapshots := raft.NewDiscardSnapshotStore()
		if err := raft.BootstrapCluster(c, cache, log, snapshots, transports[i], members); err != nil {
			return err
		}
		node, err := raft.NewRaft(c, nothing{}, cache, log, snapshots, transports[i])
		if err != nil {
			return err
		}
		g.rafts = append(g.rafts, node)
	}
	return nil
}

// patience is how long a voter waits for its leader, and a leader for its voters.
const patience = 2 * time.Second

// leader waits for the group's leader.
func (g *raftGroup) leader(ctx context.Context) (*raft.Raft, error) {
	end := time.Now().Add(15 * patience)
	for time.Now().Before(end) {
		for _, r := range g.rafts {
			if r.State() == raft.Leader && r.Barrier(patience).Error() == nil {
				return r, nil
			}
		}
		if !sleepUntil(ctx, time.Now().Add(20*time.Millisecond)) {
			return nil, ctx.Err()
		}
	}
	return nil, errors.New("no leader was elected")
}

func (g *raftGroup) close() {
	for _, r := range g.rafts {
		_ = r.Shutdown().Error()
	}
	for _, c := range g.closers {
		_ = c.Close()
	}
}

// nothing is a state machine that does nothing.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("nothing to keep") }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }
