package transport

import "sync"

// httpPlaces are the places of requests that send and receive over HTTP. A key may hold as many as are free besides: one
// key alone takes half of them, two take a third each. So the requests of one key, however slow, leave places for the
// others.
type httpPlaces struct {
	all int

	mu    sync.Mutex
	taken int
	byKey map[string]int // of those that hold any
}

func newHTTPPlaces(all int) *httpPlaces { return &httpPlaces{all: all, byKey: map[string]int{}} }

// take gives a request of a key a place, or reports how many places the key holds and how many are taken.
func (p *httpPlaces) take(key string) (held, taken int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, taken = p.byKey[key], p.taken
	if held >= p.all-taken {
		return held, taken, false
	}
	p.byKey[key]++
	p.taken++
	return held + 1, taken + 1, true
}

// give takes a place back.
func (p *httpPlaces) give(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.byKey[key]--; p.byKey[key] == 0 {
		delete(p.byKey, key)
	}
}

// used returns how many places are taken.
func (p *httpPlaces) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
