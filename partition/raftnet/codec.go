package raftnet

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/wire"
)

// Kind says which of raft's calls a request is.
type Kind byte

// The kinds of a call, as they stand in its bytes.
const (
	Append     Kind = 1 // AppendEntries
	Vote       Kind = 2 // RequestVote
	PreVote    Kind = 3 // RequestPreVote
	TimeoutNow Kind = 4
	Install    Kind = 5 // InstallSnapshot, a stream
)

// The bytes of raft calls are described in docs/formats/raft.md. A request is version, kind, group (2 bytes), then the
// fields of its kind. An answer is version, kind, fields.
const (
	version = 1
	// EntryOverhead is more bytes than the fields of an entry take beside its data.
	EntryOverhead = 48
	// MaxAppendEntries bounds the entries of one call, as raft itself does.
	MaxAppendEntries = 1024
	// maxHeaderBytes bounds ids and addresses; those of Busbar are UUIDs.
	maxHeaderBytes = 256
	// maxConfigurationBytes bounds the membership in a snapshot's header.
	maxConfigurationBytes = 1 << 20
)

// Call is a raft call of a peer of which the head has been read.
type Call struct {
	Kind  Kind
	Group fsm.PartitionID
	body  []byte
}

// ParseCall reads the head of a call. The error wraps [fsm.ErrFormat].
func ParseCall(b []byte) (Call, error) {
	if len(b) < 4 || b[0] != version {
		return Call{}, fmt.Errorf("raft call of unknown version: %w", fsm.ErrFormat)
	}
	return Call{Kind: Kind(b[1]), Group: fsm.PartitionID(binary.BigEndian.Uint16(b[2:])), body: b[4:]}, nil
}

// Command decodes the call into the request that raft knows, and returns the header within it. Entries are views into
// the bytes of the call. The error wraps [fsm.ErrFormat].
func (c Call) Command() (command any, header *raft.RPCHeader, err error) {
	r := wire.NewReader(c.body)
	switch c.Kind {
	case Append:
		a := new(raft.AppendEntriesRequest)
		readAppend(r, a)
		command, header = a, &a.RPCHeader
	case Vote:
		a := new(raft.RequestVoteRequest)
		readVote(r, a)
		command, header = a, &a.RPCHeader
	case PreVote:
		a := new(raft.RequestPreVoteRequest)
		readPreVote(r, a)
		command, header = a, &a.RPCHeader
	case TimeoutNow:
		a := new(raft.TimeoutNowRequest)
		readHeader(r, &a.RPCHeader)
		command, header = a, &a.RPCHeader
	case Install:
		a := new(raft.InstallSnapshotRequest)
		readInstall(r, a)
		command, header = a, &a.RPCHeader
	default:
		return nil, nil, fmt.Errorf("raft call of kind %d: %w", c.Kind, fsm.ErrFormat)
	}
	return command, header, r.Done()
}

func appendHeader(b []byte, h *raft.RPCHeader) []byte {
	b = binary.AppendUvarint(b, uint64(h.ProtocolVersion))
	b = wire.AppendBytes(b, h.ID)
	return wire.AppendBytes(b, h.Addr)
}

func appendAppend(b []byte, a *raft.AppendEntriesRequest) []byte {
	b = appendHeader(b, &a.RPCHeader)
	b = binary.AppendUvarint(b, a.Term)
	b = binary.AppendUvarint(b, a.PrevLogEntry)
	b = binary.AppendUvarint(b, a.PrevLogTerm)
	b = binary.AppendUvarint(b, a.LeaderCommitIndex)
	b = binary.AppendUvarint(b, uint64(len(a.Entries)))
	for _, e := range a.Entries {
		b = binary.AppendUvarint(b, e.Index)
		b = binary.AppendUvarint(b, e.Term)
		b = append(b, byte(e.Type))
		var at int64
		if !e.AppendedAt.IsZero() {
			at = e.AppendedAt.UnixNano()
		}
		b = binary.AppendVarint(b, at)
		b = wire.AppendBytes(b, e.Extensions)
		b = wire.AppendBytes(b, e.Data)
	}
	return b
}

func appendVote(b []byte, a *raft.RequestVoteRequest) []byte {
	b = appendHeader(b, &a.RPCHeader)
	b = binary.AppendUvarint(b, a.Term)
	b = binary.AppendUvarint(b, a.LastLogIndex)
	b = binary.AppendUvarint(b, a.LastLogTerm)
	return wire.AppendBool(b, a.LeadershipTransfer)
}

func appendPreVote(b []byte, a *raft.RequestPreVoteRequest) []byte {
	b = appendHeader(b, &a.RPCHeader)
	b = binary.AppendUvarint(b, a.Term)
	b = binary.AppendUvarint(b, a.LastLogIndex)
	return binary.AppendUvarint(b, a.LastLogTerm)
}

func appendInstall(b []byte, a *raft.InstallSnapshotRequest) []byte {
	b = appendHeader(b, &a.RPCHeader)
	b = binary.AppendUvarint(b, uint64(a.SnapshotVersion))
	b = binary.AppendUvarint(b, a.Term)
	b = binary.AppendUvarint(b, a.LastLogIndex)
	b = binary.AppendUvarint(b, a.LastLogTerm)
	b = wire.AppendBytes(b, a.Configuration)
	b = binary.AppendUvarint(b, a.ConfigurationIndex)
	return binary.AppendUvarint(b, uint64(a.Size))
}

// encodeAnswer encodes what raft answered to a call of the kind.
func encodeAnswer(kind Kind, response any) ([]byte, error) {
	b := append(make([]byte, 0, 128), version, byte(kind))
	switch a := response.(type) {
	case *raft.AppendEntriesResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		b = binary.AppendUvarint(b, a.LastLog)
		return wire.AppendBool(wire.AppendBool(b, a.Success), a.NoRetryBackoff), nil
	case *raft.RequestVoteResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		return wire.AppendBool(b, a.Granted), nil
	case *raft.RequestPreVoteResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		return wire.AppendBool(b, a.Granted), nil
	case *raft.TimeoutNowResponse:
		return appendHeader(b, &a.RPCHeader), nil
	case *raft.InstallSnapshotResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		return wire.AppendBool(b, a.Success), nil
	}
	return nil, fmt.Errorf("raft answered a call of kind %d with %T", kind, response)
}

// openAnswer checks the head of an answer to a call of the kind.
func openAnswer(b []byte, kind Kind) *wire.Reader {
	r := wire.NewReader(b)
	if v, k := r.Byte(), Kind(r.Byte()); v != version || k != kind {
		r.Fail("answer of version %d, kind %d to a call of kind %d", v, k, kind)
	}
	return r
}

func readHeader(r *wire.Reader, h *raft.RPCHeader) {
	h.ProtocolVersion = raft.ProtocolVersion(r.Uint())
	h.ID = r.Bytes(maxHeaderBytes)
	h.Addr = r.Bytes(maxHeaderBytes)
}

func readAppend(r *wire.Reader, a *raft.AppendEntriesRequest) {
	readHeader(r, &a.RPCHeader)
	a.Term = r.Uint()
	a.PrevLogEntry = r.Uint()
	a.PrevLogTerm = r.Uint()
	a.LeaderCommitIndex = r.Uint()
	n := r.Uint()
	if n == 0 || !r.OK() {
		return
	}
	// An entry takes six bytes at least, so a count cannot make us allocate beyond the call's size.
	if n > MaxAppendEntries || n > uint64(r.Len()/6) {
		r.Fail("%d entries", n)
		return
	}
	logs := make([]raft.Log, n)
	a.Entries = make([]*raft.Log, n)
	for i := range logs {
		e := &logs[i]
		e.Index = r.Uint()
		e.Term = r.Uint()
		e.Type = raft.LogType(r.Byte())
		if at := r.Int(); at != 0 {
			e.AppendedAt = time.Unix(0, at)
		}
		e.Extensions = r.Bytes(maxHeaderBytes)
		e.Data = r.Bytes(r.Len())
		if r.OK() {
			checkLog(r, a, e, i)
		}
		a.Entries[i] = e
	}
}

// checkLog refuses what would make raft panic or store a hole: unknown types, undecodable
// configurations and indexes that do not follow each other.
func checkLog(r *wire.Reader, a *raft.AppendEntriesRequest, e *raft.Log, i int) {
	if e.Index != a.PrevLogEntry+uint64(i)+1 || e.Term > a.Term || e.Term < a.PrevLogTerm {
		r.Fail("entry %d of term %d behind %d of term %d", e.Index, e.Term, a.PrevLogEntry, a.PrevLogTerm)
		return
	}
	switch e.Type {
	case raft.LogCommand, raft.LogNoop, raft.LogBarrier:
	case raft.LogConfiguration:
		if !validConfiguration(e.Data) {
			r.Fail("entry %d is no configuration", e.Index)
		}
	default:
		r.Fail("entry %d of type %d", e.Index, e.Type)
	}
}

// validConfiguration reports whether raft can decode b; its decoder panics otherwise.
func validConfiguration(b []byte) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return len(b) <= maxConfigurationBytes && len(raft.DecodeConfiguration(b).Servers) > 0
}

func readAppendAnswer(r *wire.Reader, a *raft.AppendEntriesResponse) {
	readHeader(r, &a.RPCHeader)
	a.Term, a.LastLog = r.Uint(), r.Uint()
	a.Success, a.NoRetryBackoff = r.Bool(), r.Bool()
}

func readVote(r *wire.Reader, a *raft.RequestVoteRequest) {
	readHeader(r, &a.RPCHeader)
	a.Term, a.LastLogIndex, a.LastLogTerm = r.Uint(), r.Uint(), r.Uint()
	a.LeadershipTransfer = r.Bool()
	//lint:ignore SA1019 raft itself still answers a request without an address by this field
	a.Candidate = a.Addr
}

func readVoteAnswer(r *wire.Reader, a *raft.RequestVoteResponse) {
	readHeader(r, &a.RPCHeader)
	a.Term, a.Granted = r.Uint(), r.Bool()
}

func readPreVote(r *wire.Reader, a *raft.RequestPreVoteRequest) {
	readHeader(r, &a.RPCHeader)
	a.Term, a.LastLogIndex, a.LastLogTerm = r.Uint(), r.Uint(), r.Uint()
}

func readPreVoteAnswer(r *wire.Reader, a *raft.RequestPreVoteResponse) {
	readHeader(r, &a.RPCHeader)
	a.Term, a.Granted = r.Uint(), r.Bool()
}

func readInstall(r *wire.Reader, a *raft.InstallSnapshotRequest) {
	readHeader(r, &a.RPCHeader)
	a.SnapshotVersion = raft.SnapshotVersion(r.Uint())
	a.Term, a.LastLogIndex, a.LastLogTerm = r.Uint(), r.Uint(), r.Uint()
	a.Configuration = r.Bytes(maxConfigurationBytes)
	a.ConfigurationIndex = r.Uint()
	size := r.Uint()
	if size > 1<<62 {
		r.Fail("snapshot of %d bytes", size)
		return
	}
	a.Size = int64(size)
	if r.OK() && (a.SnapshotVersion != 1 || !validConfiguration(a.Configuration)) {
		r.Fail("snapshot of version %d without a configuration", a.SnapshotVersion)
	}
	a.Leader = a.Addr
}

func readInstallAnswer(r *wire.Reader, a *raft.InstallSnapshotResponse) {
	readHeader(r, &a.RPCHeader)
	a.Term, a.Success = r.Uint(), r.Bool()
}
