package raftnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// streamCaller hands the body of a stream to a function.
type streamCaller struct {
	Caller
	f func(ctx context.Context, body io.Reader) error
}

func (c streamCaller) CallStream(ctx context.Context, _ fsm.NodeID, _ uint8, _ []byte, body io.Reader) ([]byte, error) {
	if err := c.f(ctx, body); err != nil {
		return nil, err
	}
	return encodeAnswer(Install, &raft.InstallSnapshotResponse{Term: 1, Success: true})
}

// readAll reads a whole snapshot.
func readAll(_ context.Context, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// install has a transport send so many bytes to a node.
func install(tr *Transport, to raft.ServerID, size int) error {
	args := &raft.InstallSnapshotRequest{RPCHeader: headerOf("n1"), Term: 1, LastLogIndex: 77, Size: int64(size)}
	return tr.InstallSnapshot(to, raft.ServerAddress(to), args, &raft.InstallSnapshotResponse{}, bytes.NewReader(make([]byte, size)))
}

// Two snapshots to new replicas share the bound of their node, and tell how far they are. A pause for the bound does not
// count against the time that a snapshot has.
func TestSnapshotsToNewReplicasKeepToTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 4 << 20, 64 << 10
		bound := NewRate(rate)
		began := time.Now()
		done := make(chan error, 2)
		var all []*Transport
		for range 2 {
			tr := testTransport(streamCaller{f: readAll}, testReplica{learner: true})
			tr.cfg.Rate = bound
			all = append(all, tr)
			go func() { done <- install(tr, "n2", size) }()
		}
		for range 9 {
			time.Sleep(10 * time.Second)
			sent := uint64(0)
			for _, tr := range all {
				s := tr.Sending()
				if len(s) != 1 || s[0].To != "n2" || s[0].Index != 77 || s[0].Size != size || s[0].Taken != time.Since(began) {
					t.Fatalf("after %v: %+v", time.Since(began), s)
				}
				sent += s[0].Sent
			}
			most := uint64(time.Since(began).Seconds()*rate) + 2*sendPiece
			if sent > most || sent+4*sendPiece < most {
				t.Errorf("%d bytes were sent after %v, want %d", sent, time.Since(began), most)
			}
		}
		bound.Set(0)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 95*time.Second {
			t.Errorf("without a bound the rest took until %v", took)
		}
		if s := all[0].Sending(); len(s) > 0 {
			t.Errorf("on their way when all is sent: %+v", s)
		}
	})
}

// A replica that votes is missed, so its snapshot is not held back.
func TestASnapshotToAVoterIsNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := testTransport(streamCaller{f: readAll}, testReplica{})
		tr.cfg.Rate = NewRate(1)
		began := time.Now()
		if err := install(tr, "n2", 1<<20); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A stream that does not move is given up, and so is one in a pause when the transport closes.
func TestASnapshotThatStandsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stands := func(ctx context.Context, body io.Reader) error {
			_, _ = body.Read(make([]byte, 10))
			<-ctx.Done()
			return ctx.Err()
		}
		tr := testTransport(streamCaller{f: stands}, testReplica{learner: true})
		began := time.Now()
		err := install(tr, "n2", 5<<20)
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took != tr.cfg.RPCTimeout+5*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		paused := testTransport(streamCaller{f: readAll}, testReplica{learner: true})
		paused.cfg.Rate = NewRate(1)
		done := make(chan error)
		began = time.Now()
		go func() { done <- install(paused, "n2", 1<<20) }()
		time.Sleep(time.Second)
		if err := paused.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, context.Canceled) && err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
