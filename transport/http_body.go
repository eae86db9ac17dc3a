package transport

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// A body has httpBodyGrace to arrive, and a second more for each httpBodyRate bytes of it that have arrived, httpMargin in
// all. A body that hardly comes gives its place back soon.
const (
	httpBodyGrace = 5 * time.Second
	httpBodyRate  = 1 << 10
)

// httpBody reads the body of a send over HTTP. It tells the node's count of client memory of each footprintStep
// bytes that have arrived. A sender that is slow holds only what it has sent, and keeps no other one waiting.
type httpBody struct {
	s       *Server
	from    io.Reader
	control *http.ResponseController
	began   time.Time
	patient time.Duration // since began, the deadline that the socket has
	arrived int64
	counted int64 // of arrived, in s.memory
}

// wait sets the deadline of the next bytes, unless that would change it by less than a second.
func (b *httpBody) wait() {
	patience := min(httpMargin, httpBodyGrace+time.Duration(b.arrived/httpBodyRate)*time.Second)
	if patience > b.patient {
		b.patient = patience
		_ = b.control.SetReadDeadline(b.began.Add(patience)) // a handler in a test has no connection
	}
}

// bodyTooMuch is the reason why the rest of a body is not read: the node holds as much as it may.
type bodyTooMuch struct{ limit int64 }

func (e bodyTooMuch) Error() string {
	return fmt.Sprintf("The server is busy, retry the operation: the node holds %d bytes for its clients, as many as it "+
		"may, and this body is one of those with most.", e.limit)
}

// readBody returns a body of at most limit bytes, and what gives its bytes back to the node's count. The caller
// must call that once it holds the body no more. The error is bodyTooMuch or of [http.MaxBytesReader].
func (s *Server) readBody(q *httpRequest, limit int64) (body []byte, done func(), err error) {
	b := &httpBody{s: s, from: http.MaxBytesReader(q.w, q.r.Body, limit), control: http.NewResponseController(q.w), began: time.Now()}
	s.memory.bodies.Add(1)
	b.wait()
	body, err = io.ReadAll(b)
	if err == nil {
		_ = b.control.SetReadDeadline(q.until)
	}
	return body, func() {
		s.memory.bodies.Add(-1)
		s.memory.held.Add(-b.counted)
	}, err
}

func (b *httpBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.arrived += int64(n)
	b.wait()
	if more := b.arrived - b.counted; more >= footprintStep {
		b.s.memory.held.Add(more)
		b.counted = b.arrived
		if b.s.memory.greedy(b.counted, b.s.stats.Connections.Load()) {
			return n, bodyTooMuch{b.s.memory.limit.Load()}
		}
	}
	return n, err
}
