package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// R12: what anybody may send to the peer port is bounded, hurts nobody else, and ends.
func TestGarbageOnThePeerPort(t *testing.T) {
	hello := appendHello(nil, identity{cluster: "test", node: "z", incarnation: 9})
	random := make([]byte, 4096)
	rand.NewChaCha8([32]byte{}).Read(random)
	before := runtime.NumGoroutine()
	a, b := duo(t, func(c *Config) { c.HelloTimeout = 200 * time.Millisecond; c.MaxHandshakes = 8 })
	waitFor(t, func() bool { // a busy machine may take more for a hello than the node gives here
		_, err := a.Call(testContext(t), "b", kindEcho, nil)
		return err == nil
	})
	for name, send := range map[string][]byte{
		"random bytes":         random,
		"HTTP":                 []byte("GET / HTTP/1.1\r\n\r\n"),
		"silence":              nil,
		"half a hello":         hello[:11],
		"a later version":      append([]byte("BBMH\x04"), hello[5:]...),
		"a huge hello":         []byte("BBMH\x01\x00\xff\xff"),
		"an unknown status":    append([]byte("BBMH\x01\x07"), hello[6:]...),
		"another cluster":      appendHello(nil, identity{cluster: "other", node: "z", incarnation: 9}),
		"our own name":         appendHello(nil, identity{cluster: "test", node: "b", incarnation: 9}),
		"a name with a slash":  appendHello(nil, identity{cluster: "test", node: "../z", incarnation: 9}),
		"no name":              appendHello(nil, identity{cluster: "test", node: "", incarnation: 9}),
		"a name beyond itself": append(hello[:len(hello)-2], 200, 'z'),
		"a name of 255 bytes":  appendHello(nil, identity{cluster: "test", node: fsm.NodeID(strings.Repeat("z", 255)), incarnation: 9}),
		"a cluster of 255":     appendHello(nil, identity{cluster: strings.Repeat("z", 255), node: "z", incarnation: 9}),
		"then no multiplexer":  append(bytes.Clone(hello), random...),
		"then silence":         hello,
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, b)
			c.Write(send)
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Error("the connection was kept")
			}
			mustCall(t, a, "b", "not hurt by "+name)
		})
	}
	a.Close()
	b.Close()
	settleGoroutines(t, before)
}

func dialRaw(t *testing.T, n *node) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// F7: the hello's time is never over here, so nothing but a place that is made lets the peers through, both ways.
func TestSilentSocketsDoNotKeepPeersOut(t *testing.T) {
	a, b := duo(t, func(c *Config) { c.HelloTimeout = time.Hour; c.MaxHandshakes = 4 })
	for range 20 {
		dialRaw(t, a)
		dialRaw(t, b)
	}
	mustCall(t, a, "b", "a socket between silent ones")
	mustCall(t, b, "a", "and back")
}

// F7: who has most of the places gives way, so a host alone does not take them from others.
func TestTheHostWithMostHandshakesGivesWay(t *testing.T) {
	_, b := duo(t, func(c *Config) { c.HelloTimeout = time.Hour; c.MaxHandshakes = 4 })
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	patient, err := other.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Skipf("SKIPPED: no second address of loopback: %v", err)
	}
	defer patient.Close()
	for range 20 {
		c := dialRaw(t, b)
		_, _ = c.Write(appendHello(nil, identity{cluster: "test", node: "z", incarnation: 9})[:5])
		if len(heldBy(b, "127.0.0.1")) > 4 {
			t.Fatal("more sockets than places")
		}
	}
	waitFor(t, func() bool { return len(heldBy(b, "127.0.0.1")) == 3 && len(heldBy(b, "127.0.0.9")) == 1 })
	if _, err := patient.Write(appendHello(nil, identity{cluster: "test", node: "y", incarnation: 9})); err != nil {
		t.Fatal(err)
	}
	if got, err := readHello(patient); err != nil || got.node != b.cfg.Node {
		t.Errorf("hello %+v, %v", got, err)
	}
}

// heldBy returns the handshakes under way of a host.
func heldBy(n *node, host string) (all []shake) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.handshakes {
		if s.host == host {
			all = append(all, s)
		}
	}
	return all
}

// rawPeer is a peer that speaks the multiplexer but need not keep to the protocol above it.
type rawPeer struct {
	calls net.Conn
}

func newRawPeer(t *testing.T, n *node, id fsm.NodeID) *rawPeer {
	t.Helper()
	c := dialRaw(t, n)
	c.Write(appendHello(nil, identity{cluster: "test", node: id, incarnation: 9}))
	if got, err := readHello(c); err != nil || got.node != n.cfg.Node {
		t.Fatalf("hello %+v, %v", got, err)
	}
	return &rawPeer{c}
}

func rawFrame(length uint32, typ frameType, kind uint8, id uint64, payload ...byte) []byte {
	b := appendFrameHeader(nil, typ, kind, id, 0)
	binary.BigEndian.PutUint32(b, length)
	return append(b, payload...)
}

func TestMalformedFramesEndTheirLinkAlone(t *testing.T) {
	a, b := duo(t, nil)
	mustCall(t, a, "b", "before")
	for name, bytes := range map[string][]byte{
		"a huge length":          rawFrame(1<<32-1, frameRequest, kindEcho, 1),
		"a byte too long":        rawFrame(b.cfg.MaxFrameBytes+1, frameRequest, kindEcho, 1),
		"type 0":                 rawFrame(0, 0, 0, 1),
		"an unknown type":        rawFrame(0, 99, 0, 1),
		"a ping with a payload":  rawFrame(1, framePing, 0, 1, 'x'),
		"an id used twice":       append(rawFrame(0, frameRequest, kindPark, 1), rawFrame(0, frameRequest, kindPark, 1)...),
		"a stream opened twice":  append(rawFrame(0, frameOpen, 0, 1), rawFrame(0, frameOpen, 0, 1)...),
		"a stream of ours":       rawFrame(0, frameOpen, 1, 1),
		"a stream of nobody":     rawFrame(0, frameOpen, 2, 1),
		"an empty piece":         append(rawFrame(0, frameOpen, 0, 1), rawFrame(0, frameData, 0, 1)...),
		"a short window":         rawFrame(2, frameWindow, 0, 1, 'x', 'y'),
		"a window never used":    append(rawFrame(0, frameOpen, 0, 1), rawFrame(4, frameWindow, 0, 1, 0, 0, 0, 1)...),
		"more than the window":   append(rawFrame(0, frameOpen, 0, 1), rawFrame(streamWindowBytes+1, frameData, 0, 1, make([]byte, streamWindowBytes+1)...)...),
		"a request after finish": append(rawFrame(0, frameFinished, 0, 0), rawFrame(0, frameRequest, kindPark, 1)...),
	} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, b, "z")
			p.calls.Write(bytes)
			p.calls.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, p.calls); err != nil {
				t.Errorf("the link was kept: %v", err)
			}
			mustCall(t, a, "b", "not hurt by "+name)
		})
	}
	t.Run("answers that nobody asked for are ignored", func(t *testing.T) {
		p := newRawPeer(t, b, "z")
		for _, typ := range []frameType{
			frameAnswer, frameError, frameBusy, frameUnknown, frameCancel, frameEnd,
		} {
			p.calls.Write(rawFrame(0, typ, 0, 77))
		}
		p.calls.Write(rawFrame(1, frameData, openedByReceiver, 77, 'x'))
		p.calls.Write(rawFrame(2, frameRequest, kindEcho, 5, 'o', 'k'))
		p.wantAnswer(t, frameAnswer, 5, "ok")
	})
}

func (p *rawPeer) wantAnswer(t *testing.T, typ frameType, id uint64, payload string) {
	t.Helper()
	var header [frameHeaderBytes]byte
	p.calls.SetReadDeadline(time.Now().Add(patience))
	for {
		f, err := readFrame(p.calls, &header, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if f.typ == framePing {
			continue
		}
		if f.typ != typ || f.id != id || string(f.payload) != payload {
			t.Fatalf("got %+v, want type %d, id %d, %q", f, typ, id, payload)
		}
		return
	}
}

func TestALengthThatIsOnlyClaimedAllocatesLittle(t *testing.T) {
	const claimed = 32 << 20
	r := io.MultiReader(bytes.NewReader(rawFrame(claimed, frameRequest, 1, 1)), strings.NewReader("short"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var header [frameHeaderBytes]byte
	_, err := readFrame(r, &header, claimed)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want an unexpected end", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 2*firstReadBytes {
		t.Errorf("%d bytes were allocated for 5 that came", got)
	}
}

func TestPayloadsOfEverySizeAreReadWhole(t *testing.T) {
	for _, n := range []int{0, 1, firstReadBytes - 1, firstReadBytes, firstReadBytes + 1, 3*firstReadBytes + 7} {
		want := bytes.Repeat([]byte{7}, n)
		got, err := readPayload(bytes.NewReader(want), n)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
}

// S-230: load beyond a bound is refused, not queued without end, and the refusal says that nothing
// happened.
func TestTooManyCallsAreBusy(t *testing.T) {
	for _, c := range []struct {
		name           string
		caller, server int
	}{{"at the caller", 3, 100}, {"at the server", 100, 3}} {
		t.Run(c.name, func(t *testing.T) {
			var names book
			ca, cb := testConfig("a"), testConfig("b")
			ca.MaxCalls, cb.MaxCalls = c.caller, c.server
			a, b := startNode(t, &names, ca), startNode(t, &names, cb)
			ctx, cancel := context.WithCancel(testContext(t))
			for range 3 {
				go a.Call(ctx, "b", kindPark, nil)
				<-b.parked
			}
			_, err := a.Call(ctx, "b", kindEcho, nil)
			if !errors.Is(err, fsm.ErrBusy) || !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("the fourth ended %v, want ErrBusy and ErrUnavailable", err)
			}
			cancel()
			for range 3 {
				<-b.unparked
			}
		})
	}
}

func TestTooManyBytesInHandlersAreBusy(t *testing.T) {
	a, b := duo(t, func(c *Config) { c.MaxFrameBytes = 1 << 20; c.MaxHandledBytes = 1 << 20 })
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	go a.Call(ctx, "b", kindPark, make([]byte, 1<<20))
	<-b.parked
	_, err := a.Call(ctx, "b", kindEcho, []byte("x"))
	if !errors.Is(err, fsm.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	mustCall(t, a, "b", "")
}

func TestAPeerThatDoesNotReadIsCutOff(t *testing.T) {
	_, b := duo(t, func(c *Config) {
		c.MaxFrameBytes, c.MaxQueueBytes = 1<<20, 4<<20
		c.WriteTimeout = 300 * time.Millisecond
	})
	p := newRawPeer(t, b, "z")
	request := append(rawFrame(1<<20, frameRequest, kindEcho, 0), make([]byte, 1<<20)...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for id := uint64(0); ; id++ {
			binary.BigEndian.PutUint64(request[6:], id)
			if _, err := p.calls.Write(request); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("a peer that takes no answers was served on")
	}
}

func TestUnknownKindsAndErrors(t *testing.T) {
	a, _ := duo(t, nil)
	for _, to := range []fsm.NodeID{"a", "b"} {
		t.Run("at "+string(to), func(t *testing.T) {
			if _, err := a.Call(testContext(t), to, 99, nil); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("a kind without handler: %v, want ErrUnavailable", err)
			}
			_, err := a.CallStream(testContext(t), to, 99, nil, strings.NewReader("x"))
			if !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("a stream without handler: %v, want ErrUnavailable", err)
			}
			_, err = a.Call(testContext(t), to, kindFail, []byte("disk full"))
			var remote *RemoteError
			if !errors.As(err, &remote) || remote.Text != "disk full" || !errors.Is(err, fsm.ErrUnknown) {
				t.Errorf("a handler's error: %v", err)
			}
			_, err = a.Call(testContext(t), to, kindFail, bytes.Repeat([]byte("x"), 2*maxErrorBytes))
			if !errors.As(err, &remote) || len(remote.Text) != maxErrorBytes {
				t.Errorf("a long error: %d bytes, want %d", len(remote.Text), maxErrorBytes)
			}
			ended, cancel := context.WithCancel(testContext(t))
			cancel()
			if _, err := a.Call(ended, to, kindEcho, nil); !errors.Is(err, fsm.ErrUnavailable) ||
				!errors.Is(err, context.Canceled) {
				t.Errorf("a context that had ended: %v, want ErrUnavailable and Canceled", err)
			}
		})
	}
	for _, to := range []fsm.NodeID{"nobody", "", "a/b", fsm.NodeID(strings.Repeat("x", 65))} {
		if _, err := a.Call(testContext(t), to, kindEcho, nil); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("call to %q: %v, want ErrUnavailable", to, err)
		}
	}
	// Those without an address are forgotten, each behind the end of its call.
	waitFor(t, func() bool { return len(a.Peers()) <= 1 })
}

func TestTooManyPeersAreRefused(t *testing.T) {
	var names book
	cfg := testConfig("a")
	cfg.MaxPeers = 3
	a := startNode(t, &names, cfg)
	for i := range 3 {
		newRawPeer(t, a, fsm.NodeID(fmt.Sprintf("z%d", i)))
	}
	c := dialRaw(t, a)
	c.Write(appendHello(nil, identity{cluster: "test", node: "z9", incarnation: 9}))
	if _, err := readHello(c); !errors.Is(err, errRefused) {
		t.Errorf("the fourth peer: %v, want a refusal", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(appendHello(nil, identity{cluster: "test", node: "z", incarnation: 9, wants: "a", founded: Digest{1}, keyed: Digest{2}}))
	f.Add(appendHello(nil, identity{version: 2, cluster: "test", node: "z", incarnation: 9}))
	f.Add(appendRefusal(nil, helloVersion, "no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		// Fields that this build does not know are lost, the rest is not.
		if again, err := readHello(bytes.NewReader(appendHello(nil, id))); err != nil || again != id {
			t.Errorf("%x reads as %+v, which is read again as %+v, %v", b, id, again, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(rawFrame(2, frameRequest, 1, 3, 'h', 'i'))
	f.Add(rawFrame(0, framePing, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		var header [frameHeaderBytes]byte
		fr, err := readFrame(bytes.NewReader(b), &header, 1<<16)
		if err != nil {
			return
		}
		again := append(appendFrameHeader(nil, fr.typ, fr.kind, fr.id, len(fr.payload)), fr.payload...)
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%x reads as %+v", b, fr)
		}
	})
}
