package amqp

import "encoding/binary"

// AppendProtocolHeader writes the header of protocol version 1.0.0.
func AppendProtocolHeader(dst []byte, id ProtocolID) []byte {
	return append(dst, 'A', 'M', 'Q', 'P', byte(id), 1, 0, 0)
}

// AppendEmptyFrame writes a heartbeat.
func AppendEmptyFrame(dst []byte) []byte { return append(dst, 0, 0, 0, 8, 2, 0, 0, 0) }

// beginFrame reserves a frame header; endFrame fills in the size.
func beginFrame(dst []byte, t FrameType, channel uint16) (out []byte, start int) {
	start = len(dst)
	dst = append(dst, 0, 0, 0, 0, 2, byte(t))
	return binary.BigEndian.AppendUint16(dst, channel), start
}

func endFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// AppendFrame writes a frame with one performative, which decides the frame's type. The channel of
// a SASL frame means nothing and is to be 0.
func AppendFrame(dst []byte, channel uint16, p Performative) []byte {
	t := FrameAMQP
	if c := p.Code(); c >= CodeSASLMechanisms && c <= CodeSASLOutcome {
		t = FrameSASL
	}
	dst, start := beginFrame(dst, t, channel)
	return endFrame(p.appendTo(dst), start)
}

// AppendTransfer writes one transfer frame with all of the payload, without allocating. Whether it
// fits into a frame of the peer's is the caller's affair; see AppendTransferPart.
func AppendTransfer(dst []byte, channel uint16, t *Transfer, payload ...[]byte) []byte {
	dst, start := beginFrame(dst, FrameAMQP, channel)
	dst = t.appendTo(dst)
	for _, p := range payload {
		dst = append(dst, p...)
	}
	return endFrame(dst, start)
}

// AppendTransferPart writes one transfer frame of at most maxFrameSize bytes, and returns what is left of head and
// body. The frame holds as much of head and then body as fits. It sets t.More accordingly: the delivery is complete
// when that is false. maxFrameSize is at least MinMaxFrameSize; a transfer whose own fields fill that much is a
// programming error, and its frames grow by one byte of payload each.
func AppendTransferPart(
	dst []byte, channel uint16, t *Transfer, maxFrameSize uint32, head, body []byte,
) (out, headLeft, bodyLeft []byte) {
	limit := uint64(max(maxFrameSize, MinMaxFrameSize))
	dst, start := beginFrame(dst, FrameAMQP, channel)
	t.More = false
	dst = t.appendTo(dst)
	room := int64(limit) - int64(len(dst)-start)
	if int64(len(head)+len(body)) > room {
		// The two forms of a boolean are of the same size, so the room is what it was.
		t.More = true
		dst = t.appendTo(dst[:start+FrameHeaderBytes])
		room = max(room, 1)
	}
	n := int(min(room, int64(len(head))))
	dst = append(dst, head[:n]...)
	m := int(min(room-int64(n), int64(len(body))))
	dst = append(dst, body[:m]...)
	return endFrame(dst, start), head[n:], body[m:]
}

// AppendDisposition writes one disposition frame, without allocating.
func AppendDisposition(dst []byte, channel uint16, d *Disposition) []byte {
	dst, start := beginFrame(dst, FrameAMQP, channel)
	return endFrame(d.appendTo(dst), start)
}

// AppendFlow writes one flow frame, without allocating.
func AppendFlow(dst []byte, channel uint16, f *Flow) []byte {
	dst, start := beginFrame(dst, FrameAMQP, channel)
	return endFrame(f.appendTo(dst), start)
}
