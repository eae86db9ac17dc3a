package partition

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// The bytes of raft calls (docs/formats/raft.md). A request is version, kind, group (2 bytes), then
// the fields of its kind; an answer is version, kind, fields. Integers are big endian or varints,
// byte strings have a varint length.
const (
	wireVersion   = 1
	rpcAppend     = 1
	rpcVote       = 2
	rpcPreVote    = 3
	rpcTimeoutNow = 4
	rpcInstall    = 5

	// logOverhead is more than the fields of an entry beside its data take.
	logOverhead = 48
	// maxAppendEntries bounds the entries of one call; raft itself allows 1024.
	maxAppendEntries = 1024
	// maxHeaderBytes bounds ids and addresses; ours are UUIDs.
	maxHeaderBytes = 256
	// maxConfigurationBytes bounds the membership in a snapshot's header.
	maxConfigurationBytes = 1 << 20
)

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendHeader(b []byte, h *raft.RPCHeader) []byte {
	b = binary.AppendUvarint(b, uint64(h.ProtocolVersion))
	b = appendBytes(b, h.ID)
	return appendBytes(b, h.Addr)
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
		b = appendBytes(b, e.Extensions)
		b = appendBytes(b, e.Data)
	}
	return b
}

func appendVote(b []byte, a *raft.RequestVoteRequest) []byte {
	b = appendHeader(b, &a.RPCHeader)
	b = binary.AppendUvarint(b, a.Term)
	b = binary.AppendUvarint(b, a.LastLogIndex)
	b = binary.AppendUvarint(b, a.LastLogTerm)
	return appendBool(b, a.LeadershipTransfer)
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
	b = appendBytes(b, a.Configuration)
	b = binary.AppendUvarint(b, a.ConfigurationIndex)
	return binary.AppendUvarint(b, uint64(a.Size))
}

// encodeAnswer encodes what raft answered to a call of the kind.
func encodeAnswer(kind byte, response any) ([]byte, error) {
	b := append(make([]byte, 0, 128), wireVersion, kind)
	switch a := response.(type) {
	case *raft.AppendEntriesResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		b = binary.AppendUvarint(b, a.LastLog)
		return appendBool(appendBool(b, a.Success), a.NoRetryBackoff), nil
	case *raft.RequestVoteResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		return appendBool(b, a.Granted), nil
	case *raft.RequestPreVoteResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		return appendBool(b, a.Granted), nil
	case *raft.TimeoutNowResponse:
		return appendHeader(b, &a.RPCHeader), nil
	case *raft.InstallSnapshotResponse:
		b = appendHeader(b, &a.RPCHeader)
		b = binary.AppendUvarint(b, a.Term)
		return appendBool(b, a.Success), nil
	}
	return nil, fmt.Errorf("raft answered a call of kind %d with %T", kind, response)
}

// wireReader decodes; the first violation sticks in err and the rest reads as zero.
type wireReader struct {
	b   []byte
	err error
}

// openAnswer checks the head of an answer to a call of the kind.
func openAnswer(b []byte, kind byte) *wireReader {
	r := &wireReader{b: b}
	if v, k := r.byte(), r.byte(); v != wireVersion || k != kind {
		r.bad("answer of version %d, kind %d to a call of kind %d", v, k, kind)
	}
	return r
}

// openCall splits the head of a request.
func openCall(b []byte) (kind byte, group fsm.PartitionID, body []byte, err error) {
	if len(b) < 4 || b[0] != wireVersion {
		return 0, 0, nil, fmt.Errorf("raft call of unknown version: %w", fsm.ErrFormat)
	}
	return b[1], fsm.PartitionID(binary.BigEndian.Uint16(b[2:])), b[4:], nil
}

func (r *wireReader) bad(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format+": %w", append(args, fsm.ErrFormat)...)
	}
	r.b = nil
}

// done returns the first violation; bytes left over are one.
func (r *wireReader) done() error {
	if r.err == nil && len(r.b) > 0 {
		r.bad("%d bytes too many", len(r.b))
	}
	return r.err
}

func (r *wireReader) byte() byte {
	if len(r.b) == 0 {
		r.bad("cut short")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *wireReader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.bad("%d is no bool", v)
	}
	return v == 1
}

func (r *wireReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *wireReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes reads a byte string of at most limit bytes as a view.
func (r *wireReader) bytes(limit int) []byte {
	n := r.uint()
	if n > uint64(limit) || n > uint64(len(r.b)) {
		r.bad("byte string of %d bytes", n)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *wireReader) header(h *raft.RPCHeader) {
	h.ProtocolVersion = raft.ProtocolVersion(r.uint())
	h.ID = r.bytes(maxHeaderBytes)
	h.Addr = r.bytes(maxHeaderBytes)
}

func (r *wireReader) appendRequest(a *raft.AppendEntriesRequest) {
	r.header(&a.RPCHeader)
	a.Term = r.uint()
	a.PrevLogEntry = r.uint()
	a.PrevLogTerm = r.uint()
	a.LeaderCommitIndex = r.uint()
	n := r.uint()
	if n == 0 || r.err != nil {
		return
	}
	// An entry takes six bytes at least, so a count cannot make us allocate beyond the call's size.
	if n > maxAppendEntries || n > uint64(len(r.b)/6) {
		r.bad("%d entries", n)
		return
	}
	logs := make([]raft.Log, n)
	a.Entries = make([]*raft.Log, n)
	for i := range logs {
		e := &logs[i]
		e.Index = r.uint()
		e.Term = r.uint()
		e.Type = raft.LogType(r.byte())
		if at := r.int(); at != 0 {
			e.AppendedAt = time.Unix(0, at)
		}
		e.Extensions = r.bytes(maxHeaderBytes)
		e.Data = r.bytes(len(r.b))
		if r.err == nil {
			r.checkLog(a, e, i)
		}
		a.Entries[i] = e
	}
}

// checkLog refuses what would make raft panic or store a hole: unknown types, undecodable
// configurations and indexes that do not follow each other.
func (r *wireReader) checkLog(a *raft.AppendEntriesRequest, e *raft.Log, i int) {
	if e.Index != a.PrevLogEntry+uint64(i)+1 || e.Term > a.Term || e.Term < a.PrevLogTerm {
		r.bad("entry %d of term %d behind %d of term %d", e.Index, e.Term, a.PrevLogEntry, a.PrevLogTerm)
		return
	}
	switch e.Type {
	case raft.LogCommand, raft.LogNoop, raft.LogBarrier:
	case raft.LogConfiguration:
		if !validConfiguration(e.Data) {
			r.bad("entry %d is no configuration", e.Index)
		}
	default:
		r.bad("entry %d of type %d", e.Index, e.Type)
	}
}

// validConfiguration reports whether raft can decode b; its decoder panics otherwise.
func validConfiguration(b []byte) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return len(b) <= maxConfigurationBytes && len(raft.DecodeConfiguration(b).Servers) > 0
}

func (r *wireReader) appendResponse(a *raft.AppendEntriesResponse) {
	r.header(&a.RPCHeader)
	a.Term, a.LastLog = r.uint(), r.uint()
	a.Success, a.NoRetryBackoff = r.bool(), r.bool()
}

func (r *wireReader) voteRequest(a *raft.RequestVoteRequest) {
	r.header(&a.RPCHeader)
	a.Term, a.LastLogIndex, a.LastLogTerm = r.uint(), r.uint(), r.uint()
	a.LeadershipTransfer = r.bool()
	//lint:ignore SA1019 raft itself still answers a request without an address by this field
	a.Candidate = a.Addr
}

func (r *wireReader) voteResponse(a *raft.RequestVoteResponse) {
	r.header(&a.RPCHeader)
	a.Term, a.Granted = r.uint(), r.bool()
}

func (r *wireReader) preVoteRequest(a *raft.RequestPreVoteRequest) {
	r.header(&a.RPCHeader)
	a.Term, a.LastLogIndex, a.LastLogTerm = r.uint(), r.uint(), r.uint()
}

func (r *wireReader) preVoteResponse(a *raft.RequestPreVoteResponse) {
	r.header(&a.RPCHeader)
	a.Term, a.Granted = r.uint(), r.bool()
}

func (r *wireReader) installRequest(a *raft.InstallSnapshotRequest) {
	r.header(&a.RPCHeader)
	a.SnapshotVersion = raft.SnapshotVersion(r.uint())
	a.Term, a.LastLogIndex, a.LastLogTerm = r.uint(), r.uint(), r.uint()
	a.Configuration = r.bytes(maxConfigurationBytes)
	a.ConfigurationIndex = r.uint()
	size := r.uint()
	if size > 1<<62 {
		r.bad("snapshot of %d bytes", size)
		return
	}
	a.Size = int64(size)
	if r.err == nil && (a.SnapshotVersion != 1 || !validConfiguration(a.Configuration)) {
		r.bad("snapshot of version %d without a configuration", a.SnapshotVersion)
	}
	a.Leader = a.Addr
}

func (r *wireReader) installResponse(a *raft.InstallSnapshotResponse) {
	r.header(&a.RPCHeader)
	a.Term, a.Success = r.uint(), r.bool()
}
