package transport

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// KeyRate bounds what one key may send to this node: one access policy, or one subject of JSON web tokens. A rate of 0 is
// no limit; its burst counts for nothing then.
type KeyRate struct {
	Messages     int // each second
	MessageBurst int // that may be sent at once, above the rate
	Bytes        int // each second, of encoded messages
	ByteBurst    int
}

// Set reports whether there is a limit.
func (k KeyRate) Set() bool { return k.Messages > 0 || k.Bytes > 0 }

// rates counts what the keys send. A nil one limits nothing.
type rates struct {
	now func() time.Time
	on  atomic.Bool // whether there is a limit

	mu      sync.Mutex
	limit   KeyRate
	keys    map[string]*spending
	sweepAt int // keys at which those that owe nothing are forgotten
}

// spending is what a key has sent above its rates. It falls by the rate each second.
type spending struct {
	messages, bytes float64
	at              time.Time
}

// firstSweep is the number of keys that are remembered without looking whether they still owe something.
const firstSweep = 1024

func newRates(limit KeyRate, now func() time.Time) *rates {
	r := &rates{now: now, keys: map[string]*spending{}, sweepAt: firstSweep}
	r.set(limit)
	return r
}

// set changes the limit. The keys go on owing the same.
func (r *rates) set(limit KeyRate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
	r.on.Store(limit.Set())
}

// limits reports whether there is a limit.
func (r *rates) limits() bool { return r != nil && r.on.Load() }

// age lets time pass for a key.
func (r *rates) age(s *spending, now time.Time) {
	seconds := max(0, now.Sub(s.at).Seconds())
	s.messages = max(0, s.messages-seconds*float64(r.limit.Messages))
	s.bytes = max(0, s.bytes-seconds*float64(r.limit.Bytes))
	s.at = now
}

// take counts messages that a key sends, or refuses them without effect (S-230). A message larger than a burst passes
// when the key owes nothing, so that every message can be sent.
func (r *rates) take(key string, messages, bytes int) *amqp.Error {
	if !r.limits() || key == "" { // the work began before there was a limit
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s := r.keys[key]
	if s == nil {
		r.sweepLocked(now)
		s = &spending{at: now}
		r.keys[key] = s
	}
	r.age(s, now)
	if e := exceeds(key, "messages", s.messages, messages, r.limit.Messages, r.limit.MessageBurst); e != nil {
		return e
	}
	if e := exceeds(key, "bytes", s.bytes, bytes, r.limit.Bytes, r.limit.ByteBurst); e != nil {
		return e
	}
	if r.limit.Messages > 0 {
		s.messages += float64(messages)
	}
	if r.limit.Bytes > 0 {
		s.bytes += float64(bytes)
	}
	return nil
}

// exceeds returns the refusal of more than a burst, in the words of the original and with what is used of the limit.
func exceeds(key, unit string, owed float64, more, rate, burst int) *amqp.Error {
	if rate == 0 || owed == 0 || owed+float64(more) <= float64(burst) {
		return nil
	}
	wait := math.Ceil((owed + min(float64(more), float64(burst)) - float64(burst)) / float64(rate))
	return amqpError(amqp.ConditionServerBusy, "The request was terminated because the key '%s' is being throttled: it has sent "+
		"%.0f of the %d %s that it may send to this node above its rate of %d a second. Please wait %.0f seconds and try again.",
		key, owed, burst, unit, rate, max(1, wait))
}

// sweepLocked forgets keys that owe nothing, when there are many.
func (r *rates) sweepLocked(now time.Time) {
	if len(r.keys) < r.sweepAt {
		return
	}
	for key, s := range r.keys {
		if r.age(s, now); s.messages == 0 && s.bytes == 0 {
			delete(r.keys, key)
		}
	}
	r.sweepAt = max(firstSweep, 2*len(r.keys))
}

// used returns what the keys that have sent most owe.
func (r *rates) used() (messages, bytes int) {
	if !r.limits() {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, s := range r.keys {
		r.age(s, now)
		messages, bytes = max(messages, int(s.messages)), max(bytes, int(s.bytes))
	}
	return messages, bytes
}

// keyOf is the name of the key that made a claim. It is a policy of the namespace, or of an entity behind the entity,
// or the subject of a JSON web token behind its issuer. Two issuers may have a subject of the same name.
func keyOf(claim auth.Claim) string {
	switch {
	case claim.Issuer != "":
		return claim.Policy + " of " + claim.Issuer
	case claim.Scope != "":
		return claim.Scope + ":" + claim.Policy
	}
	return claim.Policy
}
