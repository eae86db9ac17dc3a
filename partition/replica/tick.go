package replica

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// tickEvery is how often a partition with deadlines moves its clocks, even if nothing is due
// (S-288).
const tickEvery = time.Second

// tickHorizon is how near a deadline must be for the clocks to be moved every tickEvery. Locks end within five
// minutes (S-157); what is farther off, like the memory of answers, is not hurt when a failover stretches it. A
// partition that only remembers answers stays silent meanwhile.
const tickHorizon = 5 * time.Minute

// farTickEvery is the least time between two ticks while no deadline is that near.
const farTickEvery = 10 * time.Second

// tickPause is the least time between two ticks that found the same deadline due. The state handles a bounded number
// per Tick, but a tick that handles none must not spin the log.
const tickPause = 10 * time.Millisecond

// ticker decides when the leader proposes a Tick. A partition without deadlines is silent.
type ticker struct {
	last  time.Time     // of the last entry, which moved the clocks
	wait  time.Duration // until the next look, 0 if there is nothing to wait for
	stuck clocks        // deadlines of the last tick
	tick  time.Time     // when that was due
	since time.Time     // since when raft refuses entries because of a transfer
}

// reset notes that an entry has just been applied.
func (t *ticker) reset(now time.Time) { t.last = now; t.since = time.Time{} }

// due reports whether an entry needs a Tick, given the state's deadlines.
func (t *ticker) due(c clocks, s *stamper) bool {
	if c.dueWall == 0 && c.dueLease == 0 {
		t.wait = 0
		return false
	}
	wall, lease := s.now()
	next := millis(fsm.Unlimited)
	if c.dueWall != 0 {
		next = min(next, millis(c.dueWall.Since(wall)))
	}
	if c.dueLease != 0 {
		next = min(next, millis(c.dueLease.Since(lease)))
	}
	wait := min(next, tickEvery-time.Since(t.last))
	if next > tickHorizon {
		wait = max(next-tickHorizon, farTickEvery-time.Since(t.last))
	}
	if t.stuck.dueWall == c.dueWall && t.stuck.dueLease == c.dueLease {
		wait = max(wait, tickPause-time.Since(t.tick)) // not since the last entry: there may always be one
	}
	if wait > 0 {
		t.wait = wait
		return false
	}
	t.wait = 0
	t.stuck, t.tick = c, time.Now()
	return true
}

// next returns how long the proposer may sleep, 0 if there is nothing to wait for.
func (t *ticker) next() time.Duration { return max(t.wait, 0) }

// millis converts, bounded so that a far deadline cannot overflow.
func millis(m fsm.Millis) time.Duration {
	return time.Duration(min(m, fsm.Millis(time.Hour/time.Millisecond))) * time.Millisecond
}

// transferring returns for how long raft has been refusing entries because of a transfer.
func (t *ticker) transferring(now time.Time) time.Duration {
	if t.since.IsZero() {
		t.since = now
	}
	return now.Sub(t.since)
}

func (t *ticker) untransferred() { t.since = time.Time{} }
