package attack

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// tunnel is a WebSocket whose frames are written by hand.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

// upgrade opens a WebSocket.
func (a *attack) upgrade(n *cluster.Node) *tunnel {
	a.Helper()
	c := a.dial(n.AMQP)
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err := io.WriteString(c, "GET /$servicebus/websocket/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n")
	a.must("upgrade", err)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	a.must("upgrade", err)
	if res.StatusCode != http.StatusSwitchingProtocols {
		a.Fatalf("upgrade: %s", res.Status)
	}
	return &tunnel{c, r}
}

// wsFrame is one frame. first is FIN, the reserved bits and the opcode; the mask is zero.
func wsFrame(first byte, masked bool, payload []byte) []byte {
	b := []byte{first, 0}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if masked {
		b[1] |= 0x80
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, payload...)
}

// next reads one frame of the node.
func (w *tunnel) next() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(w.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(head[1])
	switch n {
	case 126:
		var more [2]byte
		if _, err := io.ReadFull(w.r, more[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(more[:]))
	case 127:
		return 0, nil, errNoFrame
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(w.r, payload)
	return head[0] & 15, payload, err
}

const amqpHeader = "AMQP\x03\x01\x00\x00"

// WebSocket frames without a mask, with reserved bits and opcodes, control frames that are too long or fragmented: the node
// closes with the code of RFC 6455. A message of many empty fragments, or of one byte each, is read like any other.
func TestWebSocketFramesAgainstTheRules(t *testing.T) {
	onClusters(t, func(a *attack) string {
		n := a.c.Nodes[0]
		amqp := []byte(amqpHeader)
		for range size(1, 20) {
			for name, tc := range map[string]struct {
				b    []byte
				code uint16 // of the close; RFC 6455 asks for none in particular without a mask
			}{
				"no mask":                    {wsFrame(0x82, false, amqp), 1000},
				"the first reserved bit":     {wsFrame(0xc2, true, amqp), 1002},
				"the second reserved bit":    {wsFrame(0xa2, true, amqp), 1002},
				"the third reserved bit":     {wsFrame(0x92, true, amqp), 1002},
				"a ping of 126 bytes":        {wsFrame(0x89, true, make([]byte, 126)), 1002},
				"a close of 70,000 bytes":    {wsFrame(0x88, true, make([]byte, 70_000)), 1002},
				"a ping in fragments":        {wsFrame(0x09, true, nil), 1002},
				"opcode 3":                   {wsFrame(0x83, true, amqp), 1002},
				"opcode 15":                  {wsFrame(0x8f, true, nil), 1002},
				"text":                       {wsFrame(0x81, true, amqp), 1003},
				"no beginning":               {wsFrame(0x80, true, amqp), 1002},
				"a beginning within another": {append(wsFrame(0x02, true, amqp[:4]), wsFrame(0x82, true, amqp)...), 1002},
				"a length with the top bit":  {append([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 0, 0, 0), 1000},
				"a close of one byte":        {wsFrame(0x88, true, []byte{3}), 1002},
				"a close with a bad code":    {wsFrame(0x88, true, []byte{0xff, 0xff}), 1002},
			} {
				a.closes(n, name, tc.b, tc.code)
			}
		}
		fragments := size(50_000, 1_000_000)
		a.fragmented(n, fragments)
		return fmt.Sprintf("%d frames, %d fragments", size(1, 20)*15, fragments)
	})
}

// closes demands that the node ends a WebSocket, and with which code.
func (a *attack) closes(n *cluster.Node, name string, b []byte, code uint16) {
	a.Helper()
	w := a.upgrade(n)
	defer w.Close()
	_, _ = w.Write(b)
	for {
		opcode, payload, err := w.next()
		switch {
		case err == nil && opcode != 8:
			continue // an answer to what came before
		case err == nil && (len(payload) < 2 || binary.BigEndian.Uint16(payload) != code):
			a.Errorf("%s: closed with %q, want %d", name, payload, code)
		case isTimeout(err):
			a.Errorf("%s: the connection was kept", name)
		case err != nil:
			a.Errorf("%s: no close: %v, want %d", name, err, code)
		}
		return
	}
}

// fragmented sends a protocol header behind empty fragments, and one byte by byte with pings between, and reads the answers.
func (a *attack) fragmented(n *cluster.Node, fragments int) {
	a.Helper()
	w := a.upgrade(n)
	defer w.Close()
	b := wsFrame(0x02, true, nil)
	for range fragments {
		b = append(b, wsFrame(0x00, true, nil)...)
	}
	b = append(b, wsFrame(0x80, true, []byte(amqpHeader))...)
	_, err := w.Write(b)
	a.must("write fragments", err)
	a.greeted("empty fragments", w)

	slow := a.upgrade(n)
	defer slow.Close()
	b = nil
	for i := range amqpHeader {
		b = append(b, wsFrame(0x82, true, []byte{amqpHeader[i]})...)
		b = append(b, wsFrame(0x89, true, []byte{amqpHeader[i]})...)
	}
	_, err = slow.Write(b)
	a.must("write bytes", err)
	a.greeted("byte by byte", slow)
}

// greeted reads the node's own protocol header.
func (a *attack) greeted(name string, w *tunnel) {
	a.Helper()
	for {
		opcode, payload, err := w.next()
		if err != nil {
			a.Errorf("%s: no greeting: %v", name, err)
			return
		}
		if opcode == 2 && len(payload) >= 8 {
			if string(payload[:8]) != amqpHeader {
				a.Errorf("%s: greeted with %q", name, payload)
			}
			return
		}
	}
}
