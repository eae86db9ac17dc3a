package tick

import "time"

// Ticker fires at the whole multiples of its period in Unix time. So the tickers of a process fire together, and so do
// those of all nodes whose clocks agree. A quiet node then wakes once for all of them, and not once for each.
//
// C delivers a tick. There is no other tick before the receiver calls Next.
type Ticker struct {
	C     <-chan time.Time
	timer *time.Timer
	every time.Duration
}

// Every returns a ticker of a period, which must be positive. The first tick comes after at most that.
func Every(period time.Duration) *Ticker {
	t := time.NewTimer(Until(period))
	return &Ticker{C: t.C, timer: t, every: period}
}

// Next asks for the next tick. It comes after half a period at least and one and a half at most. A tick that was received
// late, or a clock that was set, moves no later tick off the multiples.
func (t *Ticker) Next() {
	wait := Until(t.every)
	if wait < t.every/2 {
		wait += t.every
	}
	t.timer.Reset(wait)
}

// Stop ends the ticks.
func (t *Ticker) Stop() { t.timer.Stop() }

// Until returns the time to the next whole multiple of a period: more than nothing, and the period at most.
func Until(period time.Duration) time.Duration {
	past := time.Duration(time.Now().UnixNano()) % period
	if past < 0 { // the clock is before 1970
		past += period
	}
	return period - past
}
