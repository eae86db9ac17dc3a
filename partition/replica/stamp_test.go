package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// S-286: a leader whose wall clock is behind lets wall time stand still until it has caught up.
// T-247: lease time goes on meanwhile.
func TestSlowWallClockStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stamper
		ahead := fsm.Wall(time.Now().Add(time.Hour).UnixMilli()) // what the last leader stamped
		s.lead(ahead, 5000)
		time.Sleep(30 * time.Minute)
		if wall, lease := s.now(); wall != ahead || lease != 5000+30*60*1000 {
			t.Errorf("after half an hour: wall %d ahead, lease %d", wall-ahead, lease)
		}
		time.Sleep(31 * time.Minute)
		if wall, _ := s.now(); wall != ahead+60*1000 {
			t.Errorf("caught up: wall is %d ms further", wall-ahead)
		}
	})
}

// S-287: lease time continues from what the new leader's state says.
func TestLeaseContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stamper
		s.lead(0, 1000)
		time.Sleep(10 * time.Second)
		if _, lease := s.now(); lease != 11_000 {
			t.Errorf("lease is %d", lease)
		}
		time.Sleep(time.Hour) // not leading
		s.lead(0, 11_500)
		if _, lease := s.now(); lease != 11_500 {
			t.Errorf("lease is %d at the beginning of the next leadership", lease)
		}
	})
}

// S-286, S-287: a clock that is set moves wall time only, a clock that drifts moves lease time.
func TestTheClocksOfANodeAreItsOwn(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	date, passing := at, at
	s := stamper{clock: func() (time.Time, time.Time) { return date, passing }}
	s.lead(0, 1000)
	date, passing = at.Add(-time.Hour), at.Add(3*time.Second)
	first, lease := s.now()
	if lease != 4000 {
		t.Errorf("lease is %d after 3 s", lease)
	}
	date = at.Add(time.Hour)
	if wall, lease := s.now(); wall != first+2*3600*1000 || lease != 4000 {
		t.Errorf("set ahead by two hours: wall moved by %d, lease is %d", wall-first, lease)
	}
	date = at
	if wall, _ := s.now(); wall != first+2*3600*1000 {
		t.Errorf("set back: wall is %d from the first", wall-first)
	}
}

func TestEverySeedIsFresh(t *testing.T) {
	var s stamper
	s.lead(0, 0)
	seen := map[[32]byte]bool{}
	for range 1000 {
		var e fsm.Entry
		s.stamp(&e)
		if e.Seed == [32]byte{} || seen[e.Seed] {
			t.Fatal("a seed is repeated or empty")
		}
		seen[e.Seed] = true
	}
}
