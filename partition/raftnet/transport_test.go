package raftnet

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// testReplica is a member's replica with data; the cases set what is otherwise.
type testReplica struct{ silent, stranger, learner bool }

func (r testReplica) Silent() bool                    { return r.silent }
func (testReplica) Blank() bool                       { return false }
func (r testReplica) Allowed(fsm.NodeID) bool         { return !r.stranger }
func (r testReplica) Learner(raft.ServerID) bool      { return r.learner }
func (testReplica) Voter() raft.ServerID              { return "" }
func (testReplica) Term() uint64                      { return 1 }
func (testReplica) Standing() Standing                { return Standing{} }
func (testReplica) Defers() bool                      { return false }
func (testReplica) Given()                            {}
func (testReplica) Behind(*raft.AppendEntriesRequest) {}
func (testReplica) Holds(uint64, uint64) bool         { return false }
func (testReplica) Unreadable(error)                  {}

func testTransport(c Caller, r testReplica) *Transport {
	return New(Config{Group: 3, Self: "n1", Caller: c, HeartbeatTimeout: 2 * time.Second, ElectionTimeout: 2 * time.Second,
		RPCTimeout: 10 * time.Second, MaxAppendBytes: 1 << 20}, r, raft.NewInmemSnapshotStore())
}

func headerOf(id string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(id), Addr: []byte(id)}
}

var sampleAppend = raft.AppendEntriesRequest{
	RPCHeader: headerOf("n2"), Term: 5, PrevLogEntry: 9, PrevLogTerm: 4, LeaderCommitIndex: 8,
	Entries: []*raft.Log{
		{Index: 10, Term: 4, Type: raft.LogNoop},
		{Index: 11, Term: 5, Type: raft.LogCommand, Data: []byte("abc"), Extensions: []byte{0xee},
			AppendedAt: time.Unix(0, 1_000_000_007)},
	},
}

// TestTransportGolden pins the bytes, so that nodes of different builds understand each other.
func TestTransportGolden(t *testing.T) {
	tr := testTransport(nil, testReplica{})
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{"append entries", appendAppend(tr.head(Append, 0), &sampleAppend),
			"01 01 0003 03 02 6e32 02 6e32 05 09 04 08 02" + // head, header, terms, two entries
				"0a 04 01 00 00 00" + // noop: index, term, type, no time, no extensions, no data
				"0b 05 00 8ea8d6b907 01 ee 03 616263"},
		{"request vote", appendVote(tr.head(Vote, 0), &raft.RequestVoteRequest{
			RPCHeader: headerOf("n2"), Term: 300, LastLogIndex: 7, LastLogTerm: 6, LeadershipTransfer: true}),
			"01 02 0003 03 02 6e32 02 6e32 ac02 07 06 01"},
		{"pre-vote", appendPreVote(tr.head(PreVote, 0), &raft.RequestPreVoteRequest{
			RPCHeader: headerOf("n2"), Term: 2, LastLogIndex: 7, LastLogTerm: 1}),
			"01 03 0003 03 02 6e32 02 6e32 02 07 01"},
		{"install", appendInstall(tr.head(Install, 0), &raft.InstallSnapshotRequest{
			RPCHeader: headerOf("n2"), SnapshotVersion: 1, Term: 4, LastLogIndex: 9, LastLogTerm: 3,
			Configuration: []byte{0xaa, 0xbb}, ConfigurationIndex: 1, Size: 1000}),
			"01 05 0003 03 02 6e32 02 6e32 01 04 09 03 02 aabb 01 e807"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(tc.want, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(tc.got, want) {
				t.Errorf("got  %x\nwant %x", tc.got, want)
			}
		})
	}
}

func TestTransportDecodesWhatItEncodes(t *testing.T) {
	b := appendAppend(nil, &sampleAppend)
	got, _, err := Call{Kind: Append, body: b}.Command()
	if err != nil {
		t.Fatal(err)
	}
	want := sampleAppend
	want.Entries[0].Data, want.Entries[0].Extensions = []byte{}, []byte{}
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for n := range b { // every cut is an error, never a panic
		if _, _, err := (Call{Kind: Append, body: b[:n]}).Command(); err == nil {
			t.Errorf("%d of %d bytes decode", n, len(b))
		}
	}
}

func TestTransportRefusesWhatRaftWouldPanicOn(t *testing.T) {
	for name, change := range map[string]func(*raft.AppendEntriesRequest){
		"an unknown entry type":           func(a *raft.AppendEntriesRequest) { a.Entries[1].Type = 99 },
		"a configuration that is none":    func(a *raft.AppendEntriesRequest) { a.Entries[1].Type = raft.LogConfiguration },
		"an address entry of old raft":    func(a *raft.AppendEntriesRequest) { a.Entries[1].Type = raft.LogAddPeerDeprecated },
		"a hole between the entries":      func(a *raft.AppendEntriesRequest) { a.Entries[1].Index = 12 },
		"an entry of a term to come":      func(a *raft.AppendEntriesRequest) { a.Entries[1].Term = 6 },
		"entries not behind the previous": func(a *raft.AppendEntriesRequest) { a.PrevLogEntry = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			a := sampleAppend
			one, two := *a.Entries[0], *a.Entries[1]
			a.Entries = []*raft.Log{&one, &two}
			change(&a)
			if _, _, err := (Call{Kind: Append, body: appendAppend(nil, &a)}).Command(); !errors.Is(err, fsm.ErrFormat) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzCalls(f *testing.F) {
	tr := testTransport(nil, testReplica{})
	f.Add(byte(Append), appendAppend(nil, &sampleAppend))
	f.Add(byte(Vote), appendVote(nil, &raft.RequestVoteRequest{RPCHeader: headerOf("n2")}))
	f.Add(byte(PreVote), appendPreVote(nil, &raft.RequestPreVoteRequest{RPCHeader: headerOf("n2")}))
	f.Add(byte(TimeoutNow), appendHeader(nil, &raft.RPCHeader{}))
	done, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		_, _ = tr.Serve(done, "n2", Call{Kind: Kind(kind), body: b})
		_, _ = tr.ServeSnapshot(done, "n2", Call{Kind: Install, body: b}, bytes.NewReader(nil))
		for k := Append; k <= Install; k++ {
			readAppendAnswer(openAnswer(b, k), new(raft.AppendEntriesResponse))
			readInstallAnswer(openAnswer(b, k), new(raft.InstallSnapshotResponse))
		}
		_, _ = ParseCall(b)
	})
}

// fakeCaller answers calls with a function.
type fakeCaller struct {
	Caller
	f func(kind uint8, b []byte) ([]byte, error)
}

func (c fakeCaller) Call(_ context.Context, _ fsm.NodeID, kind uint8, b []byte) ([]byte, error) {
	return c.f(kind, b)
}

func TestAppendIsBoundedInBytes(t *testing.T) {
	var sent raft.AppendEntriesRequest
	tr := testTransport(fakeCaller{f: func(_ uint8, b []byte) ([]byte, error) {
		c, err := ParseCall(b)
		if err != nil {
			return nil, err
		}
		command, _, err := c.Command()
		if err != nil {
			return nil, err
		}
		sent = *command.(*raft.AppendEntriesRequest)
		return encodeAnswer(Append, &raft.AppendEntriesResponse{Term: 1, LastLog: 3, Success: true})
	}}, testReplica{})
	args := raft.AppendEntriesRequest{RPCHeader: headerOf("n1"), Term: 1, LeaderCommitIndex: 5}
	for i := range 5 {
		args.Entries = append(args.Entries,
			&raft.Log{Index: uint64(i + 1), Term: 1, Data: make([]byte, 400<<10)})
	}
	var resp raft.AppendEntriesResponse
	if err := tr.AppendEntries("n2", "n2", &args, &resp); err != nil || !resp.Success {
		t.Fatal(err, resp)
	}
	if len(sent.Entries) != 2 || len(args.Entries) != 2 {
		t.Errorf("sent %d entries, raft is told of %d", len(sent.Entries), len(args.Entries))
	}
	// The tail of a follower that the call says nothing about must not be committed by it.
	if sent.LeaderCommitIndex != 2 {
		t.Errorf("commit index %d goes beyond the entries sent", sent.LeaderCommitIndex)
	}
	one := raft.AppendEntriesRequest{RPCHeader: headerOf("n1"), Term: 1,
		Entries: []*raft.Log{{Index: 1, Term: 1, Data: make([]byte, 3<<20)}}}
	if err := tr.AppendEntries("n2", "n2", &one, &resp); err != nil || len(sent.Entries) != 1 {
		t.Errorf("a large entry does not travel alone: %v", err)
	}
}

// TestPreVoteErrorIsNoVote: raft counts the text of an old version's error as a vote.
func TestPreVoteErrorIsNoVote(t *testing.T) {
	tr := testTransport(fakeCaller{f: func(uint8, []byte) ([]byte, error) {
		return nil, errors.New("unexpected command")
	}}, testReplica{})
	err := tr.RequestPreVote("n2", "n2", &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
	if err == nil || strings.Contains(err.Error(), "unexpected command") {
		t.Errorf("got %v", err)
	}
}

func TestTransportServesMembersAsThemselves(t *testing.T) {
	vote := appendVote(nil, &raft.RequestVoteRequest{RPCHeader: headerOf("n2"), Term: 1})
	for _, tc := range []struct {
		name    string
		from    fsm.NodeID
		allowed bool
		silent  bool
		ok      bool
	}{
		{"a member", "n2", true, false, true},
		{"a node that speaks for another", "n3", true, false, false},
		{"a node that is no member", "n2", false, false, false},
		{"a member while the disk is stalled", "n2", true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := testTransport(nil, testReplica{silent: tc.silent, stranger: !tc.allowed})
			go func() {
				select {
				case c := <-tr.rpc:
					c.Respond(&raft.RequestVoteResponse{Term: 1, Granted: true}, nil)
				case <-tr.ctx.Done():
				}
			}()
			_, err := tr.Serve(t.Context(), tc.from, Call{Kind: Vote, body: vote})
			if (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTransportKnowsNoFastPath(t *testing.T) {
	tr := testTransport(nil, testReplica{})
	tr.SetHeartbeatHandler(func(raft.RPC) { t.Error("heartbeat left the main loop") }) // R2
	if _, err := tr.AppendEntriesPipeline("n2", "n2"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("pipeline: %v", err) // R5
	}
	go func() {
		c := <-tr.rpc
		c.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	}()
	beat := appendAppend(nil, &raft.AppendEntriesRequest{RPCHeader: headerOf("n2"), Term: 1})
	if _, err := tr.Serve(t.Context(), "n2", Call{Kind: Append, body: beat}); err != nil {
		t.Error(err)
	}
}

func TestInstallStreamIsCutAtItsSize(t *testing.T) {
	tr := testTransport(nil, testReplica{})
	conf := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}})
	head := appendInstall(nil, &raft.InstallSnapshotRequest{RPCHeader: headerOf("n2"),
		SnapshotVersion: 1, Term: 1, Configuration: conf, Size: 4})
	go func() {
		c := <-tr.rpc
		b, err := io.ReadAll(c.Reader)
		if string(b) != "four" {
			t.Errorf("raft reads %q, %v", b, err)
		}
		c.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
	}()
	if _, err := tr.ServeSnapshot(t.Context(), "n2", Call{Kind: Install, body: head}, strings.NewReader("four and more")); err != nil {
		t.Error(err)
	}
}
