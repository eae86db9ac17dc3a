package amqp

// ProtocolID is the fifth byte of a protocol header, AMQP 1.0 §2.2.
type ProtocolID uint8

// The protocols a header may announce.
const (
	ProtocolAMQP ProtocolID = 0
	ProtocolTLS  ProtocolID = 2
	ProtocolSASL ProtocolID = 3
)

// ProtocolHeader is the eight bytes with which either side starts a layer.
type ProtocolHeader struct {
	ID                     ProtocolID
	Major, Minor, Revision uint8
}

// ProtocolHeaderBytes is the size of a protocol header.
const ProtocolHeaderBytes = 8

// FrameType is the sixth byte of a frame.
type FrameType uint8

// The types of frames.
const (
	FrameAMQP FrameType = 0
	FrameSASL FrameType = 1
)

const (
	// FrameHeaderBytes is the size of a frame header without extension.
	FrameHeaderBytes = 8
	// MinMaxFrameSize is the smallest max-frame-size a peer may have, AMQP 1.0 §2.7.1. It is the
	// limit before open as well.
	MinMaxFrameSize = 512
)

// FrameHeader is the first eight bytes of a frame, AMQP 1.0 §2.3.
type FrameHeader struct {
	Size    uint32 // bytes, header included
	DOFF    uint8  // where the body starts, in words of four bytes
	Type    FrameType
	Channel uint16
}

// Frame is what ReadFrame returns. A body of no bytes is a heartbeat.
type Frame struct {
	Type    FrameType
	Channel uint16
	Body    []byte // good until the next read
}
