package replica

import (
	"sync/atomic"
	"time"
)

// peak is the longest of the times that were noted. An average would hide the one that somebody waited
// for.
type peak struct{ ns atomic.Int64 }

func (p *peak) note(d time.Duration) {
	for {
		was := p.ns.Load()
		if int64(d) <= was || p.ns.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

func (p *peak) longest() time.Duration { return time.Duration(p.ns.Load()) }
