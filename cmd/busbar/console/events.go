package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	// maxStreams bounds the streams of events of a node. Each holds a socket and asks the node every two seconds.
	maxStreams = 64
	// eventsEvery is the time between two looks at what a stream tells.
	eventsEvery = 2 * time.Second
	// streamLife ends a stream; the browser opens the next one by itself.
	streamLife = 15 * time.Minute
	// maxWatched bounds the entities of one stream: those that a page shows.
	maxWatched = 200
	// writeWait bounds one write to a browser that does not read.
	writeWait = 10 * time.Second
)

// stream is one page that is told what changes.
type stream struct {
	c      *Console
	w      http.ResponseWriter
	r      *http.Request
	one    *session
	secret string
	// asks are what the stream tells: the name of an event, and the path that has its data.
	asks []ask
}

type ask struct {
	event, path string
	query       url.Values
	last        []byte // what was told
}

// serveEvents tells a page by server-sent events what changes, until its session ends. The parameters are path, for
// each entity, and cluster=true.
func (c *Console) serveEvents(w http.ResponseWriter, r *http.Request) {
	one, _, secret := c.session(r, false)
	if one == nil {
		signedOut(w)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, "Events are read by GET.")
		return
	}
	values := r.URL.Query()
	paths := values["path"]
	if len(paths) > maxWatched {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("A stream tells of %d entities at most.", maxWatched))
		return
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, "Too many pages are open at this node.")
		return
	}
	if !c.sessions.stream(one) {
		refuse(w, http.StatusServiceUnavailable, "Too many pages of this session are open.")
		return
	}
	defer c.sessions.streamEnds(one)
	s := &stream{c: c, w: w, r: r, one: one, secret: secret}
	if len(paths) > 0 {
		s.asks = append(s.asks, ask{event: "entities", path: "/api/entities", query: url.Values{"path": paths}})
	}
	if values.Get("cluster") == "true" {
		s.asks = append(s.asks, ask{event: "cluster", path: "/api/cluster"}, ask{event: "health", path: "/api/health/cluster"})
	}
	s.run()
}

// run looks and tells, again and again.
func (s *stream) run() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusOK)
	life := time.NewTimer(streamLife)
	defer life.Stop()
	tick := time.NewTicker(s.c.every)
	defer tick.Stop()
	for {
		if now, claim, _ := s.c.session(s.r, false); now != s.one {
			_ = s.tell("end", []byte("{}")) // the browser may be gone
			return
		} else if !s.look(claim.ExpiredAt(s.c.deps.Now())) {
			return
		}
		select {
		case <-tick.C:
		case <-life.C:
			return
		case <-s.one.over:
			_ = s.tell("end", []byte("{}"))
			return
		case <-s.c.deps.Closing:
			return
		case <-s.r.Context().Done():
			return
		}
	}
}

// look asks for everything and tells what is new; it reports whether the browser is there.
func (s *stream) look(expired bool) bool {
	if expired {
		return false
	}
	for i := range s.asks {
		a := &s.asks[i]
		in := inner(s.r, a.path, s.one.bearer.Load().token)
		in.URL.RawQuery = a.query.Encode()
		got := &recorder{header: http.Header{}, status: http.StatusOK}
		s.c.deps.Port.ServeHTTP(got, in)
		text, event := got.body.Bytes(), a.event
		if got.status != http.StatusOK {
			event = "refused"
		}
		text = bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\n"), []byte(" "))
		if bytes.Equal(text, a.last) {
			continue
		}
		a.last = text
		if s.tell(event, text) != nil {
			return false
		}
	}
	return s.send([]byte(": \n\n")) == nil // a browser that is gone is known by it
}

func (s *stream) tell(event string, data []byte) error {
	return s.send(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data))
}

func (s *stream) send(text []byte) error {
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeWait)) // a test's writer has none
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return control.Flush()
}

// recorder keeps the answer of the operations port.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
