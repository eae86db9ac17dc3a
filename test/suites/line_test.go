package suites

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// slowBytes is what the slow line carries from the node in a second. One test of the SDK receives a
// megabyte and wants that not to come within 20 ms, as over a network it never does; on loopback
// it may.
const slowBytes = 4 << 20

// slowChunk is what the line carries at once.
const slowChunk = 16 << 10

// slowLine listens on a port of its own and carries bytes to and from the node's.
func slowLine(t *testing.T, port int) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ended := make(chan struct{})
	t.Cleanup(func() {
		close(ended)
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", local(port))
			if err != nil {
				near.Close()
				continue
			}
			gone := make(chan struct{})
			all.Go(func() {
				select {
				case <-gone:
				case <-ended:
				}
				near.Close()
				far.Close()
			})
			all.Go(func() {
				_, _ = io.Copy(far, near)
				_ = far.(*net.TCPConn).CloseWrite()
			})
			all.Go(func() {
				carry(near, far)
				close(gone)
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// carry copies at most slowBytes a second.
func carry(to io.Writer, from io.Reader) {
	tick := time.NewTicker(time.Second / (slowBytes / slowChunk))
	defer tick.Stop()
	buf := make([]byte, slowChunk)
	for {
		n, err := from.Read(buf)
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
		<-tick.C
	}
}
