package transport

import (
	"sync"
	"time"

	"github.com/busbar-mq/busbar/transport/refusal"
)

const (
	// repeatsAtOnce is how many attaches of one host to one entity are refused at once for the same reason.
	// Clients retry a few times as their policy says.
	repeatsAtOnce = 5
	// firstRepeatPause is what the next one waits for its refusal; each one after it waits twice as long.
	firstRepeatPause = 10 * time.Millisecond
	// maxRepeatPause is the longest such wait, far below the time-out of any client.
	maxRepeatPause = time.Second
	// repeatsForgotten is how long a host must be silent about an entity to be refused at once again.
	repeatsForgotten = time.Minute
	// maxRepeats bounds what is remembered, some 100 bytes each; what is beyond it is refused at once.
	maxRepeats = 4096
)

// repeats slows down clients that attach again and again where nothing can come of it. A processor of an older SDK,
// whose entity was deleted, attaches more than a thousand times a second.
type repeats struct {
	mu   sync.Mutex
	seen map[repeat]*repeated
}

// repeat is who is refused what.
type repeat struct {
	host, path string
	code       refusal.Code
}

type repeated struct {
	count int
	last  time.Time
}

// wait counts a refusal and returns how long it is to be held back.
func (r *repeats) wait(key repeat, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.seen[key]
	if one == nil {
		if len(r.seen) >= maxRepeats {
			r.pruneLocked(now)
		}
		if len(r.seen) >= maxRepeats {
			return 0
		}
		if r.seen == nil {
			r.seen = map[repeat]*repeated{}
		}
		one = &repeated{}
		r.seen[key] = one
	} else if now.Sub(one.last) >= repeatsForgotten {
		one.count = 0
	}
	one.count, one.last = one.count+1, now
	beyond := one.count - repeatsAtOnce
	if beyond <= 0 {
		return 0
	}
	return min(firstRepeatPause<<min(beyond-1, 10), maxRepeatPause)
}

func (r *repeats) pruneLocked(now time.Time) {
	for key, one := range r.seen {
		if now.Sub(one.last) >= repeatsForgotten {
			delete(r.seen, key)
		}
	}
}
