package amqp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

func TestProtocolHeaders(t *testing.T) {
	for _, tc := range []struct {
		name      string
		in        string
		want      ProtocolHeader
		supported bool
		err       error
	}{
		{"AMQP", "AMQP\x00\x01\x00\x00", ProtocolHeader{ProtocolAMQP, 1, 0, 0}, true, nil},
		{"SASL", "AMQP\x03\x01\x00\x00", ProtocolHeader{ProtocolSASL, 1, 0, 0}, true, nil},
		{"TLS within AMQP", "AMQP\x02\x01\x00\x00", ProtocolHeader{ProtocolTLS, 1, 0, 0}, false,
			nil},
		{"AMQP 0-9-1", "AMQP\x00\x00\x09\x01", ProtocolHeader{ProtocolAMQP, 0, 9, 1}, false, nil},
		{"a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01", ProtocolHeader{}, false, ErrTLS},
		{"three bytes of a TLS handshake", "\x16\x03\x01", ProtocolHeader{}, false, ErrTLS},
		{"HTTP", "GET / HTTP/1.1\r\n", ProtocolHeader{}, false, ErrFraming},
		{"almost AMQP", "AMQX\x00\x01\x00\x00", ProtocolHeader{}, false, ErrFraming},
		{"nothing", "", ProtocolHeader{}, false, io.EOF},
		{"a part", "AMQP\x00", ProtocolHeader{}, false, io.ErrUnexpectedEOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := iotest.OneByteReader(bytes.NewReader([]byte(tc.in)))
			got, err := NewReader(src, 512).ReadProtocolHeader()
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %+v, %v", got, err)
			}
			if err == nil && got.Supported() != tc.supported {
				t.Errorf("supported: %t", got.Supported())
			}
		})
	}
	for _, id := range []ProtocolID{ProtocolAMQP, ProtocolSASL} {
		b := AppendProtocolHeader(nil, id)
		if h, err := ParseProtocolHeader(b); err != nil || !h.Supported() || h.ID != id {
			t.Errorf("% x: %+v, %v", b, h, err)
		}
	}
}

func TestMalformedFramesAreRefused(t *testing.T) {
	for name, hex := range map[string]string{
		"a size of 0":               "00 00 00 00 02 00 00 00",
		"a size below the header":   "00 00 00 07 02 00 00 00",
		"a size beyond the limit":   "00 00 02 01 02 00 00 00",
		"the largest size":          "ff ff ff ff 02 00 00 00",
		"a data offset of 0":        "00 00 00 08 00 00 00 00",
		"a data offset of 1":        "00 00 00 08 01 00 00 00",
		"a data offset past a body": "00 00 00 0c 04 00 00 00 00 00 00 00",
		"a type of 2":               "00 00 00 08 02 02 00 00",
	} {
		t.Run(name, func(t *testing.T) {
			b := unhex(t, hex)
			r := NewReader(bytes.NewReader(b), 512)
			if f, err := r.ReadFrame(); !errors.Is(err, ErrFraming) {
				t.Errorf("got %+v, %v", f, err)
			}
			if _, err := ParseFrameHeader(b[:7], 512); !errors.Is(err, ErrFraming) {
				t.Errorf("seven bytes: %v", err)
			}
		})
	}
}

func TestFramesAreReadHoweverTheyArrive(t *testing.T) {
	big := AppendTransfer(nil, 7, &Transfer{}, bytes.Repeat([]byte{5}, 100_000))
	extended := unhex(t, "00 00 00 0d 03 00 00 09 ee ee ee ee 2a")
	sasl := unhex(t, "00 00 00 08 02 01 ab cd")
	stream := append(AppendProtocolHeader(nil, ProtocolAMQP), AppendEmptyFrame(nil)...)
	stream = append(append(append(stream, big...), extended...), sasl...)
	stream = append(stream, big...)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"in halves":    iotest.HalfReader,
		"with the end": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(wrap(bytes.NewReader(stream)), 1<<20)
			if h, err := r.ReadProtocolHeader(); err != nil || !h.Supported() {
				t.Fatalf("%+v, %v", h, err)
			}
			for i, want := range []Frame{
				{FrameAMQP, 0, nil},
				{FrameAMQP, 7, big[FrameHeaderBytes:]},
				{FrameAMQP, 9, []byte{0x2a}},
				{FrameSASL, 0, nil},
				{FrameAMQP, 7, big[FrameHeaderBytes:]},
			} {
				f, err := r.ReadFrame()
				if err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
				if f.Type != want.Type || f.Channel != want.Channel || !bytes.Equal(f.Body,
					want.Body) {
					t.Errorf("frame %d: type %d, channel %d, %d bytes", i, f.Type, f.Channel,
						len(f.Body))
				}
			}
			if _, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

func TestAFrameThatIsCutIsAnUnexpectedEnd(t *testing.T) {
	frame := AppendTransfer(nil, 7, &Transfer{}, []byte("payload"))
	for n := 1; n < len(frame); n++ {
		_, err := NewReader(bytes.NewReader(frame[:n]), 512).ReadFrame()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestTheLimitMayRise(t *testing.T) {
	frame := AppendTransfer(nil, 0, &Transfer{}, make([]byte, 1000))
	r := NewReader(bytes.NewReader(append(AppendEmptyFrame(nil), frame...)), 0)
	if _, err := r.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if !r.FrameBuffered() {
		t.Error("a frame that is refused keeps its reader waiting")
	}
	r.SetMaxFrameSize(2000)
	if f, err := r.ReadFrame(); err != nil || len(f.Body) != len(frame)-FrameHeaderBytes {
		t.Errorf("%d bytes, %v", len(f.Body), err)
	}
	r.SetMaxFrameSize(0)
	if _, err := ParseFrameHeader(unhex(t, "00 00 02 01 02 00 00 00"), r.max); !errors.Is(err,
		ErrFraming) {
		t.Errorf("0 is unlimited: %v", err)
	}
}

// A connection's loop flushes when no whole frame is waiting: over a real socket, so that the bytes
// arrive as they do in service.
func TestBufferedTellsWhenToFlush(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	frame := AppendDisposition(nil, 1, &Disposition{State: Accepted{}})
	// Two and a half frames in one segment.
	if _, err := client.Write(append(append(append([]byte{}, frame...), frame...),
		frame[:9]...)); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&atLeast{server, 2*len(frame) + 9}, 512)
	for i, want := range []bool{true, false} {
		if _, err := r.ReadFrame(); err != nil {
			t.Fatal(err)
		}
		if got := r.FrameBuffered(); got != want {
			t.Errorf("after frame %d: %t", i, got)
		}
	}
	if r.Buffered() != 9 {
		t.Errorf("%d bytes buffered", r.Buffered())
	}
	if _, err := client.Write(frame[9:]); err != nil {
		t.Fatal(err)
	}
	f, err := r.ReadFrame()
	if err != nil || !bytes.Equal(f.Body, frame[FrameHeaderBytes:]) {
		t.Errorf("% x, %v", f.Body, err)
	}
}

// atLeast makes the first read return at least min bytes.
type atLeast struct {
	io.Reader
	min int
}

func (r *atLeast) Read(b []byte) (int, error) {
	if r.min > 0 {
		n, err := io.ReadAtLeast(r.Reader, b, r.min)
		r.min = 0
		return n, err
	}
	return r.Reader.Read(b)
}

func TestASourceThatReturnsNothingIsGivenUp(t *testing.T) {
	if _, err := NewReader(silent{}, 512).ReadFrame(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
	broken := errors.New("broken")
	if _, err := NewReader(iotest.ErrReader(broken), 512).ReadFrame(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// A peer that announces a large frame and sends little of it holds little memory.
func TestBufferGrowsWithWhatArrives(t *testing.T) {
	claim := unhex(t, "01 00 00 00 02 00 00 00")
	r := NewReader(bytes.NewReader(append(claim, make([]byte, 10_000)...)), 1<<30)
	if _, err := r.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if len(r.buf) > 2*10_008 {
		t.Errorf("a buffer of %d bytes", len(r.buf))
	}
	large := AppendTransfer(nil, 0, &Transfer{}, make([]byte, 4<<20))
	r = NewReader(bytes.NewReader(append(large, AppendEmptyFrame(nil)...)), 1<<30)
	for range 2 {
		if _, err := r.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if len(r.buf) > keptBufferBytes {
		t.Errorf("a buffer of %d bytes is kept", len(r.buf))
	}
}
