package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrTLS is wrapped by the error about a protocol header that is the begin of a TLS handshake. The client wants TLS
// on a port without. It wraps ErrFraming.
var ErrTLS = fmt.Errorf("%w: a TLS handshake on a port without TLS", ErrFraming)

// ParseProtocolHeader reads a protocol header and refuses what is none: the error wraps ErrFraming,
// and ErrTLS for a TLS handshake. The version is not judged; see Supported.
func ParseProtocolHeader(b []byte) (ProtocolHeader, error) {
	if len(b) >= 3 && b[0] == 0x16 && b[1] == 0x03 {
		return ProtocolHeader{}, ErrTLS
	}
	if len(b) < ProtocolHeaderBytes || string(b[:4]) != "AMQP" {
		return ProtocolHeader{}, fmt.Errorf("%w: no AMQP protocol header", ErrFraming)
	}
	return ProtocolHeader{ID: ProtocolID(b[4]), Major: b[5], Minor: b[6], Revision: b[7]}, nil
}

// Supported reports whether the header announces version 1.0.0 of AMQP or SASL. To any other the
// answer is a supported header and the end of the connection, AMQP 1.0 §2.2.
func (h ProtocolHeader) Supported() bool {
	return (h.ID == ProtocolAMQP || h.ID == ProtocolSASL) &&
		h.Major == 1 && h.Minor == 0 && h.Revision == 0
}

// firstBufferBytes is what a reader holds for a connection that has sent little; it grows with what
// arrives, up to the largest frame.
const firstBufferBytes = 4096

// keptBufferBytes is how large a buffer a reader keeps after a large frame.
const keptBufferBytes = 1 << 20

// maxIdleReads is how often in a row a source may return nothing and no error.
const maxIdleReads = 100

// Reader reads protocol headers and frames from one connection. It is not safe for concurrent use.
type Reader struct {
	src  io.Reader
	max  uint32
	buf  []byte
	r, w int // buf[r:w] has arrived and is not read yet
}

// NewReader returns a reader that refuses frames larger than maxFrameSize bytes, header included.
// Less than MinMaxFrameSize counts as that; 0 never means unlimited.
func NewReader(src io.Reader, maxFrameSize uint32) *Reader {
	return &Reader{
		src: src,
		max: max(maxFrameSize, MinMaxFrameSize),
		buf: make([]byte, firstBufferBytes),
	}
}

// SetMaxFrameSize changes the limit, as of the next frame: before open it is MinMaxFrameSize or
// little more, then what our open announced.
func (r *Reader) SetMaxFrameSize(n uint32) { r.max = max(n, MinMaxFrameSize) }

// Buffered returns how many bytes have arrived and are not read yet.
func (r *Reader) Buffered() int { return r.w - r.r }

// FrameBuffered reports whether the next ReadFrame will not wait for the network: a whole frame is
// there, or one that is refused. When it is false, the time has come to flush what was written.
func (r *Reader) FrameBuffered() bool {
	if r.Buffered() < FrameHeaderBytes {
		return false
	}
	size := binary.BigEndian.Uint32(r.buf[r.r:])
	return size < FrameHeaderBytes || size > r.max || uint64(r.Buffered()) >= uint64(size)
}

// ReadProtocolHeader reads a protocol header. Errors are those of ParseProtocolHeader and of the
// connection; io.EOF means that it ended before the first byte.
func (r *Reader) ReadProtocolHeader() (ProtocolHeader, error) {
	// A peer that speaks another protocol may send less than eight bytes and wait.
	if err := r.fill(3); err != nil {
		return ProtocolHeader{}, err
	}
	if _, err := ParseProtocolHeader(r.buf[r.r:r.w]); errors.Is(err, ErrTLS) {
		return ProtocolHeader{}, err
	}
	if string(r.buf[r.r:r.r+3]) != "AMQ" {
		return ProtocolHeader{}, fmt.Errorf("%w: no AMQP protocol header", ErrFraming)
	}
	if err := r.fill(ProtocolHeaderBytes); err != nil {
		return ProtocolHeader{}, err
	}
	h, err := ParseProtocolHeader(r.buf[r.r:r.w])
	r.r += ProtocolHeaderBytes
	return h, err
}

// ParseFrameHeader reads the eight bytes a frame begins with and refuses a frame that is malformed
// or larger than maxFrameSize; the error wraps ErrFraming.
func ParseFrameHeader(b []byte, maxFrameSize uint32) (FrameHeader, error) {
	if len(b) < FrameHeaderBytes {
		return FrameHeader{}, fmt.Errorf("%w: a frame header of %d bytes", ErrFraming, len(b))
	}
	h := FrameHeader{
		Size:    binary.BigEndian.Uint32(b),
		DOFF:    b[4],
		Type:    FrameType(b[5]),
		Channel: binary.BigEndian.Uint16(b[6:]),
	}
	switch {
	case h.Size < FrameHeaderBytes:
		return h, fmt.Errorf("%w: a frame of %d bytes", ErrFraming, h.Size)
	case h.Size > maxFrameSize:
		return h, fmt.Errorf("%w: a frame of %d bytes, the limit is %d",
			ErrFraming, h.Size, maxFrameSize)
	case h.DOFF < 2 || uint32(h.DOFF)*4 > h.Size:
		return h, fmt.Errorf("%w: a data offset of %d in a frame of %d bytes",
			ErrFraming, h.DOFF, h.Size)
	case h.Type > FrameSASL:
		return h, fmt.Errorf("%w: frame type %d", ErrFraming, h.Type)
	}
	return h, nil
}

// ReadFrame reads the next frame. Its body is good until the next read. The error wraps ErrFraming
// for a malformed frame and is the connection's otherwise; io.EOF means that the connection ended
// between two frames. The channel of a SASL frame is not looked at and reads as 0.
func (r *Reader) ReadFrame() (Frame, error) {
	if err := r.fill(FrameHeaderBytes); err != nil {
		return Frame{}, err
	}
	h, err := ParseFrameHeader(r.buf[r.r:r.w], r.max)
	if err != nil {
		return Frame{}, err
	}
	if err := r.fill(int(h.Size)); err != nil {
		return Frame{}, err
	}
	b := r.buf[r.r : r.r+int(h.Size) : r.r+int(h.Size)]
	r.r += int(h.Size)
	if h.Type == FrameSASL {
		h.Channel = 0
	}
	return Frame{Type: h.Type, Channel: h.Channel, Body: b[4*int(h.DOFF):]}, nil
}

// fill reads until n bytes are buffered. The buffer grows only when it is full, so what it holds in
// memory is at most twice what has arrived.
func (r *Reader) fill(n int) error {
	for idle := 0; r.w-r.r < n; {
		r.makeRoom(n)
		m, err := r.src.Read(r.buf[r.w:])
		r.w += m
		if idle++; m > 0 {
			idle = 0
		} else if err == nil && idle >= maxIdleReads {
			err = io.ErrNoProgress
		}
		if err == nil || r.w-r.r >= n {
			continue
		}
		if errors.Is(err, io.EOF) && r.w > r.r {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// makeRoom makes room behind w for some of a frame of n bytes.
func (r *Reader) makeRoom(n int) {
	pending := r.w - r.r
	if pending == 0 && len(r.buf) > keptBufferBytes && n <= keptBufferBytes {
		r.buf, r.r, r.w = make([]byte, firstBufferBytes), 0, 0
	}
	if r.r > 0 && (pending == 0 || r.r+n > len(r.buf)) {
		copy(r.buf, r.buf[r.r:r.w])
		r.r, r.w = 0, pending
	}
	if r.w == len(r.buf) {
		bigger := make([]byte, min(2*len(r.buf), max(n, firstBufferBytes)+firstBufferBytes))
		copy(bigger, r.buf[r.r:r.w])
		r.buf, r.r, r.w = bigger, 0, pending
	}
}
