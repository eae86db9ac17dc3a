package transport

import (
	"net"
	"syscall"
)

// directWriter writes to a socket without waiting. A nil one writes nothing, as for TLS and WebSockets, whose writes may wait.
type directWriter struct {
	raw syscall.RawConn
	buf []byte
	n   int
	err error
	try func(fd uintptr) bool // put together once, because each closure costs memory
}

// directTo returns what writes to a socket without waiting, nil if nothing can.
func directTo(socket net.Conn) *directWriter {
	for {
		peeked, ok := socket.(*peekedConn)
		if !ok {
			break
		}
		socket = peeked.Conn
	}
	tcp, ok := socket.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	w := &directWriter{raw: raw}
	w.try = func(fd uintptr) bool {
		w.n, w.err = writeNow(fd, w.buf)
		return true // it does not wait
	}
	return w
}

// write writes what the socket takes now, and tells how many bytes that was. Fewer than all are no error.
func (w *directWriter) write(buf []byte) (int, error) {
	if w == nil {
		return 0, nil
	}
	w.buf, w.n, w.err = buf, 0, nil
	err := w.raw.Write(w.try)
	w.buf = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}
