package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
)

// The bytes of calls between a router and a leader on another node (docs/formats/raft.md). A
// request is version, partition (2 bytes), content; an answer is version, status, then the content
// or, for an error, the hint (a byte string) and a text.
const (
	verbVersion   = 1
	maxErrorBytes = 1 << 10 // of an error's text from a peer
	maxNodeBytes  = 256     // of the id of a node; those of Busbar are UUIDs
)

// The statuses of an answer.
const (
	statusOK byte = iota
	statusNotLeader
	statusBusy
	statusUnknown
	statusUnavailable
	statusClosed
	statusUnparked
	statusEnded // the call's context ended at the leader before anything entered the log
	statusFormat
)

// A busy partition answers with this in the place of a node.
const (
	roomHint fsm.NodeID = "room"  // its disk is full
	fullHint fsm.NodeID = "crowd" // as many receives wait at the entity as may
)

func verbHead(p fsm.PartitionID, size int) []byte {
	b := append(make([]byte, 0, size+16), verbVersion)
	return binary.BigEndian.AppendUint16(b, uint16(p))
}

// openVerb splits a request.
func openVerb(b []byte) (fsm.PartitionID, []byte, error) {
	if len(b) < 3 || b[0] != verbVersion {
		return 0, nil, fmt.Errorf("call of unknown version: %w", fsm.ErrFormat)
	}
	return fsm.PartitionID(binary.BigEndian.Uint16(b[1:])), b[3:], nil
}

// failure encodes an error as an answer.
func failure(err error) []byte {
	status := statusUnknown
	var hint fsm.NodeID
	var nl *replica.NotLeaderError
	switch {
	case errors.Is(err, replica.ErrUnparked):
		status = statusUnparked
	case errors.Is(err, fsm.ErrUnknown):
		status = statusUnknown // first of all: whatever else is wrapped, something may have happened
	case errors.As(err, &nl):
		status, hint = statusNotLeader, nl.Hint
	case errors.Is(err, fsm.ErrNotLeader):
		status = statusNotLeader
	case errors.Is(err, replica.ErrDiskFull):
		status, hint = statusBusy, roomHint
	case errors.Is(err, fsm.ErrCrowded):
		status, hint = statusBusy, fullHint
	case errors.Is(err, fsm.ErrBusy):
		status = statusBusy
	case errors.Is(err, fsm.ErrUnavailable):
		status = statusUnavailable
	case errors.Is(err, fsm.ErrClosed):
		status = statusClosed
	case errors.Is(err, fsm.ErrFormat):
		status = statusFormat
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = statusEnded
	}
	text := err.Error()
	b := wire.AppendBytes([]byte{verbVersion, status}, []byte(hint))
	return wire.AppendBytes(b, []byte(text[:min(len(text), maxErrorBytes)]))
}

// success begins an answer without an error.
func success(size int) []byte { return append(make([]byte, 0, size+2), verbVersion, statusOK) }

// openResult splits an answer into its content or its error.
func openResult(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != verbVersion {
		return nil, fmt.Errorf("%w: answer of unknown version: %w", fsm.ErrUnknown, fsm.ErrFormat)
	}
	if b[1] == statusOK {
		return b[2:], nil
	}
	r := wire.NewReader(b[2:])
	hint := fsm.NodeID(r.Bytes(maxNodeBytes))
	text := string(r.Bytes(maxErrorBytes))
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("%w: %w", fsm.ErrUnknown, err)
	}
	switch b[1] {
	case statusNotLeader:
		return nil, &replica.NotLeaderError{Hint: hint}
	case statusUnparked:
		return nil, replica.ErrUnparked
	case statusBusy:
		switch hint {
		case roomHint:
			return nil, fmt.Errorf("%s: %w", text, replica.ErrDiskFull)
		case fullHint:
			return nil, fmt.Errorf("%s: %w", text, fsm.ErrCrowded)
		}
		return nil, fmt.Errorf("%s: %w", text, fsm.ErrBusy)
	case statusUnavailable, statusEnded:
		return nil, fmt.Errorf("%s: %w", text, fsm.ErrUnavailable)
	case statusClosed:
		// That node is closing, not this one: another will lead.
		return nil, fmt.Errorf("%s: %w", text, fsm.ErrNotLeader)
	}
	return nil, fmt.Errorf("%s: %w", text, fsm.ErrUnknown)
}

func appendWaitKey(b []byte, k fsm.WaitKey) []byte {
	b = binary.AppendUvarint(b, uint64(k.Entity))
	b = append(b, byte(k.Sub), byte(k.Kind))
	b = wire.AppendBool(b, k.HasSession)
	return wire.AppendBytes(b, []byte(k.Session))
}

// maxSessionBytes bounds a session id on the wire: 128 characters (RUL-17) of 4 bytes.
const maxSessionBytes = 512

func decodeWaitKey(b []byte) (fsm.WaitKey, error) {
	r := wire.NewReader(b)
	k := fsm.WaitKey{Entity: fsm.EntityID(r.Uint())}
	k.Sub, k.Kind = fsm.SubQueue(r.Byte()), fsm.WaitKind(r.Byte())
	k.HasSession = r.Bool()
	k.Session = string(r.Bytes(maxSessionBytes))
	return k, r.Done()
}

func appendRequestID(b []byte, id fsm.RequestID) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(id.Node))
	b = binary.BigEndian.AppendUint64(b, id.Pump)
	return binary.BigEndian.AppendUint64(b, id.Counter)
}

func decodeRequestID(b []byte) (fsm.RequestID, error) {
	if len(b) != 24 {
		return fsm.RequestID{}, fmt.Errorf("request id of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	return fsm.RequestID{
		Node: fsm.Incarnation(binary.BigEndian.Uint64(b)),
		Pump: binary.BigEndian.Uint64(b[8:]), Counter: binary.BigEndian.Uint64(b[16:]),
	}, nil
}
