package replica

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// lane is a group whose rounds take some time each. Its time is its own.
type lane struct {
	l       linger
	now     time.Time
	takes   time.Duration // a round
	sends   source        // of clients that do not wait for answers
	settles source        // of clients that do not wait for answers
	loops   int           // clients that wait for the answer of each settlement
	think   time.Duration // until such a client settles again
	asks    []time.Time   // when such clients settle

	sent, settled []time.Time // what waits, by its arrival
	asking        int         // clients that wait for an answer

	rounds, requests int
	waits            []time.Duration // of each send, until its round began
	longest          time.Duration   // a settlement waited, until its round began
}

// noTime is when a client settles that waits for an answer.
var noTime = time.Unix(1<<40, 0)

// source is where requests come from at a rate.
type source struct {
	rate   float64 // requests in a second
	chance *rand.Rand
	next   time.Time
}

func newLane(takes time.Duration, sends, settles float64) *lane {
	start := time.Unix(0, 0)
	return &lane{
		l: linger{length: time.Millisecond}, now: start, takes: takes, think: 50 * time.Microsecond,
		sends:   source{rate: sends, chance: rand.New(rand.NewPCG(1, 2)), next: start},
		settles: source{rate: settles, chance: rand.New(rand.NewPCG(3, 4)), next: start},
	}
}

// take calls f with the time of each request until now.
func (s *source) take(now time.Time, f func(time.Time)) {
	for s.rate > 0 && !s.next.After(now) {
		f(s.next)
		s.next = s.next.Add(time.Duration(s.chance.ExpFloat64() / s.rate * float64(time.Second)))
	}
}

// next returns when the next request comes, or end if none comes before that.
func (l *lane) next(end time.Time) time.Time {
	next := end
	for _, s := range []*source{&l.sends, &l.settles} {
		if s.rate > 0 && s.next.Before(next) {
			next = s.next
		}
	}
	for _, at := range l.asks {
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// arrive has the requests wait that are due. A client that waits for answers asks again when a round has answered it.
func (l *lane) arrive() {
	l.sends.take(l.now, func(at time.Time) { l.sent = append(l.sent, at) })
	l.settles.take(l.now, func(at time.Time) { l.settled = append(l.settled, at) })
	for i, at := range l.asks {
		if !at.After(l.now) {
			l.settled, l.asks[i], l.asking = append(l.settled, at), noTime, l.asking+1
		}
	}
}

// run lets some time pass, and returns the rounds and requests in a second.
func (l *lane) run(d time.Duration) (rounds, requests float64) {
	l.rounds, l.requests, l.waits, l.longest = 0, 0, nil, 0
	for len(l.asks) < l.loops {
		l.asks = append(l.asks, l.now)
	}
	for end := l.now.Add(d); l.now.Before(end); {
		l.arrive()
		if len(l.sent)+len(l.settled) == 0 {
			l.now = l.next(end)
			continue
		}
		for until := l.now.Add(l.l.most()); l.now.Before(until) && l.l.waits(len(l.sent)+len(l.settled), len(l.sent)); l.arrive() {
			l.now = l.next(until)
		}
		l.round()
	}
	return float64(l.rounds) / d.Seconds(), float64(l.requests) / d.Seconds()
}

// round answers what waits.
func (l *lane) round() {
	n := len(l.sent) + len(l.settled)
	for _, at := range l.sent {
		l.waits = append(l.waits, l.now.Sub(at))
	}
	for _, at := range l.settled {
		l.longest = max(l.longest, l.now.Sub(at))
	}
	l.sent, l.settled = l.sent[:0], l.settled[:0]
	l.now = l.now.Add(l.takes)
	for i := range l.asks {
		if l.asking > 0 && l.asks[i] == noTime {
			l.asks[i], l.asking = l.now.Add(l.think), l.asking-1
		}
	}
	l.l.round(n, l.now)
	l.rounds++
	l.requests += n
}

// median returns how long half of the sends waited at most until their round began.
func (l *lane) median() time.Duration {
	slices.Sort(l.waits)
	return l.waits[len(l.waits)/2]
}

// Messages of clients that do not wait share rounds, and most of them wait for nothing.
func TestRoundsWaitForASecondMessage(t *testing.T) {
	for _, rate := range []float64{1500, 2000, 3000} {
		l, free := newLane(200*time.Microsecond, rate, rate), newLane(200*time.Microsecond, rate, rate)
		free.l.length = 0
		l.run(2 * time.Second)
		free.run(2 * time.Second)
		rounds, requests := l.run(time.Minute)
		roundsFree, requestsFree := free.run(time.Minute)
		if requests < 0.98*requestsFree {
			t.Errorf("%v a second: %v requests, and %v without lingers", rate, requests, requestsFree)
		}
		if rounds > 0.5*roundsFree {
			t.Errorf("%v a second: %v rounds, and %v without lingers", rate, rounds, roundsFree)
		}
		if m := l.median(); m > 200*time.Microsecond {
			t.Errorf("%v a second: half of the sends waited for more than %v, and for %v without lingers", rate, m, free.median())
		}
		if most := l.l.length + l.takes; l.longest > most {
			t.Errorf("%v a second: a settlement waited for %v", rate, l.longest)
		}
	}
}

// Clients that wait for the answer of each settlement are slowed by a linger, and are tried seldom.
func TestClientsThatWaitForAnswersAreNotSlowed(t *testing.T) {
	span := 10 * time.Minute
	if testing.Short() {
		span = time.Minute
	}
	for _, loops := range []int{1, 2, 8, 12} {
		l := newLane(300*time.Microsecond, 0, 0)
		l.loops = loops
		l.run(10 * time.Second)
		_, requests := l.run(span)
		most := float64(loops) / (l.takes + l.think).Seconds()
		if requests < 0.99*most {
			t.Errorf("%d clients: %v requests a second of %v", loops, requests, most)
		}
	}
}

// Clients that wait for answers, and join clients that do not, are found out.
func TestLingersEndWhenTheyCost(t *testing.T) {
	l, free := newLane(200*time.Microsecond, 2500, 0), newLane(200*time.Microsecond, 2500, 0)
	free.l.length = 0
	l.run(2 * time.Second)
	if l.l.state != lingerHeld {
		t.Fatalf("state %d", l.l.state)
	}
	l.loops, free.loops = 8, 8
	l.run(10 * time.Second)
	_, most := free.run(time.Minute)
	if _, requests := l.run(time.Minute); requests < 0.98*most {
		t.Errorf("%v requests a second of %v", requests, most)
	}
}

// Where rounds are few or full, nothing lingers.
func TestOtherRoundsDoNotWait(t *testing.T) {
	seconds := 100
	if testing.Short() {
		seconds = 20
	}
	none := newLane(300*time.Microsecond, 2000, 2000)
	none.l.length = 0
	for name, l := range map[string]*lane{
		"few":  newLane(300*time.Microsecond, 400, 400),
		"full": newLane(300*time.Microsecond, 50_000, 50_000), "none": none,
	} {
		for range seconds {
			l.run(time.Second)
			if l.l.state != lingerWatched {
				t.Errorf("%s: state %d", name, l.l.state)
				break
			}
		}
	}
}
