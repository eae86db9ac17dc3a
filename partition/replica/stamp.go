package replica

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// stamper is where time and chance enter the project's state: this file alone reads the clock and
// draws random numbers for entries (docs/ARCHITECTURE.md, Time).
type stamper struct {
	wall  fsm.Wall  // the last stamp given
	lease fsm.Lease // the partition's lease time when this leadership began
	since time.Time // when that was; carries the monotonic clock
	clock func() (wall, passing time.Time)
}

// read looks at the clock.
func (s *stamper) read() (wall, passing time.Time) {
	if s.clock != nil {
		return s.clock()
	}
	t := time.Now()
	return t, t
}

// Date returns the date of this node's clock, whatever it is set to.
func (c *Config) Date() fsm.Wall {
	wall, _ := (&stamper{clock: c.Clock}).read()
	return fsm.Wall(wall.UnixMilli())
}

// lead begins a leadership: lease time continues from what the state says, so time without a leader
// costs nobody a lock (S-287).
func (s *stamper) lead(wall fsm.Wall, lease fsm.Lease) {
	s.wall = max(s.wall, wall)
	s.lease = lease
	_, s.since = s.read()
}

// now returns both clocks: wall never goes back although the host's may (S-286), lease follows the
// monotonic clock.
func (s *stamper) now() (wall fsm.Wall, lease fsm.Lease) {
	date, passing := s.read()
	s.wall = max(s.wall, fsm.Wall(date.UnixMilli()))
	return s.wall, s.lease.After(fsm.Millis(passing.Sub(s.since).Milliseconds()))
}

// stamp puts time and chance into an entry.
func (s *stamper) stamp(e *fsm.Entry) {
	e.Wall, e.Lease = s.now()
	e.Seed = Chance()
}

// Chance draws the randomness of one entry, or of one name that others must not guess.
func Chance() (b [32]byte) {
	if _, err := rand.Read(b[:]); err != nil {
		// crypto/rand never returns an error; if it did, tokens would be guessable.
		panic(fmt.Sprintf("draw a seed: %v", err))
	}
	return b
}
