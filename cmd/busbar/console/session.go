package console

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

const (
	// maxSessions bounds the sessions of a node; one more takes the place of the one that was used longest ago.
	maxSessions = 256
	// sessionLife is how long a session lasts at most, sessionRest how long without a request of its page.
	sessionLife = 12 * time.Hour
	sessionRest = time.Hour
	// maxSessionStreams bounds the streams of events of one session: tabs of a browser.
	maxSessionStreams = 8
)

// session is somebody who signed in. A key is not kept: its token holds as long as the session may.
type session struct {
	bearer atomic.Pointer[bearer]
	policy string // or the name of a person
	scope  string // the entity of the token, "" for the namespace
	// issuer and subject are those of a person who signed in at a provider, "" with a key.
	issuer, subject string
	ends            time.Time
	used            time.Time
	// streams counts the streams of events that are open.
	streams int
	// over is closed when the session ends.
	over chan struct{}
	// renewing is held by the request that asks the provider for a new token.
	renewing sync.Mutex
}

// bearer is the token of a session. It is never changed: a new one takes its place.
type bearer struct {
	// token is what Authorization says.
	token string
	// refresh asks the provider for the next token, "" if there will be none.
	refresh string
	// begins and ends bound a token of a provider; they are zero with a key.
	begins, ends time.Time
	// again is when the provider may be asked again after it failed.
	again time.Time
}

// over reports whether a token of a provider has ended. The tolerance for clocks is not for sessions.
func (b *bearer) over(now time.Time) bool { return !b.ends.IsZero() && !now.Before(b.ends) }

// mark is what the node knows a session by: who reads the memory of the table has no cookie.
type mark [sha256.Size]byte

// sessions are those of one node. They end with its process.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[mark]*session
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, all: map[mark]*session{}}
}

// begin adds a session and returns the secret of its cookie.
func (s *sessions) begin(new *session) (secret string) {
	secret = chance()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked()
	if len(s.all) >= maxSessions {
		var oldest mark
		for m, one := range s.all {
			if was := s.all[oldest]; was == nil || one.used.Before(was.used) {
				oldest = m
			}
		}
		s.endLocked(oldest)
	}
	new.used, new.over = s.now(), make(chan struct{})
	s.all[sha256.Sum256([]byte(secret))] = new
	return secret
}

// find returns the session of a secret, nil if there is none. With use it counts as a request of its page.
func (s *sessions) find(secret string, use bool) *session {
	m := mark(sha256.Sum256([]byte(secret)))
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[m]
	if one == nil {
		return nil
	}
	now := s.now()
	if one.finished(now) {
		s.endLocked(m)
		return nil
	}
	if use {
		one.used = now
	}
	return one
}

func (s *session) finished(now time.Time) bool {
	return !now.Before(s.ends) || now.Sub(s.used) >= sessionRest
}

// end ends a session, if it is there.
func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(sha256.Sum256([]byte(secret)))
}

func (s *sessions) endLocked(m mark) {
	if one := s.all[m]; one != nil {
		close(one.over)
		delete(s.all, m)
	}
}

// sweepLocked forgets those that are over.
func (s *sessions) sweepLocked() {
	now := s.now()
	for m, one := range s.all {
		if one.finished(now) {
			s.endLocked(m)
		}
	}
}

// stream takes a place for a stream of events, or reports that the session has too many.
func (s *sessions) stream(one *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.streams >= maxSessionStreams {
		return false
	}
	one.streams++
	return true
}

func (s *sessions) streamEnds(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.streams--
}

// cookieName is that of this node's cookie. Under TLS the prefix has the browser take it over TLS alone, and for this host.
func (c *Console) cookieName(r *http.Request) string {
	name := "busbar-console-" + c.deps.Node
	if r.TLS != nil {
		name = "__Host-" + name
	}
	return name
}

func (c *Console) cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: c.cookieName(r), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
}

// session returns the session of a request and what its token proves now. A key that was taken away ends its sessions.
func (c *Console) session(r *http.Request, use bool) (*session, auth.Claim, string) {
	cookie, err := r.Cookie(c.cookieName(r))
	if err != nil {
		return nil, auth.Claim{}, ""
	}
	one := c.sessions.find(cookie.Value, use)
	if one == nil {
		return nil, auth.Claim{}, ""
	}
	c.renew(r, one)
	b := one.bearer.Load()
	claim, err := c.deps.Policies.Verify(b.token, c.deps.Now())
	if err != nil || b.over(c.deps.Now()) {
		c.sessions.end(cookie.Value)
		return nil, auth.Claim{}, ""
	}
	return one, claim, cookie.Value
}
