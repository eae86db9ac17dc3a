package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// frameType says what a frame of the call stream is.
type frameType uint8

const (
	frameRequest  frameType = 1 // kind, id and the request
	frameAnswer   frameType = 2 // id and the answer
	frameError    frameType = 3 // id and the handler's error as text
	frameBusy     frameType = 4 // id; a bound of the receiver is reached, the handler did not run
	frameUnknown  frameType = 5 // id; nobody handles that kind, nothing happened
	frameCancel   frameType = 6 // id; the caller no longer wants the answer
	framePing     frameType = 7 // a sign of life; not answered, the peer sends its own
	frameDrain    frameType = 8 // the sender calls no more here and wants the link to end
	frameFinished frameType = 9 // the sender calls no more here and waits for no answer

	// Frames of bulk streams; kind says who opened the stream that id names.
	frameOpen   frameType = 10 // a stream
	frameData   frameType = 11 // bytes of a stream
	frameEnd    frameType = 12 // the sender neither writes nor reads the stream any more
	frameWindow frameType = 13 // that many further bytes may be sent: uint32
)

// frameHeaderBytes is the size of {length uint32, type uint8, kind uint8, id uint64}, big endian;
// length counts the payload alone.
const frameHeaderBytes = 14

// firstReadBytes bounds what a length that was only claimed may allocate; a payload grows with the
// bytes that arrive. An append of one full entry (256 KiB and its heads) fits at once.
const firstReadBytes = 320 << 10

type frame struct {
	typ     frameType
	kind    uint8
	id      uint64
	payload []byte // owned by the receiver
}

var errFrame = errors.New("malformed frame")

func appendFrameHeader(b []byte, typ frameType, kind uint8, id uint64, payloadBytes int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(payloadBytes))
	b = append(b, byte(typ), kind)
	return binary.BigEndian.AppendUint64(b, id)
}

// readFrame reads one frame with a payload of at most maxBytes. header is scratch space.
func readFrame(r io.Reader, header *[frameHeaderBytes]byte, maxBytes uint32) (frame, error) {
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(header[:])
	f := frame{
		typ: frameType(header[4]), kind: header[5], id: binary.BigEndian.Uint64(header[6:]),
	}
	switch f.typ {
	case frameRequest, frameAnswer, frameError, frameData, frameWindow:
	case frameBusy, frameUnknown, frameCancel, framePing, frameDrain, frameFinished, frameOpen, frameEnd:
		if n != 0 {
			return frame{}, fmt.Errorf("%w: type %d with %d bytes", errFrame, f.typ, n)
		}
		return f, nil
	default:
		return frame{}, fmt.Errorf("%w: type %d", errFrame, f.typ)
	}
	if n > maxBytes {
		return frame{}, fmt.Errorf("%w: %d bytes, want at most %d", errFrame, n, maxBytes)
	}
	var err error
	f.payload, err = readPayload(r, int(n))
	return f, err
}

// readPayload reads n bytes and never holds more than twice what has arrived beyond firstReadBytes.
func readPayload(r io.Reader, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, min(n, firstReadBytes))
	for read := 0; ; {
		if _, err := io.ReadFull(r, b[read:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if read = len(b); read == n {
			return b, nil
		}
		grown := make([]byte, min(n, 2*read))
		copy(grown, b)
		b = grown
	}
}
