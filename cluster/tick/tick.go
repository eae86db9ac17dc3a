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
	t := time.NewTimer(period - past(period))
	return &Ticker{C: t.C, timer: t, every: period}
}

// Next asks for the next tick. It comes after half a period at least and one and a half at most. A tick that was received
// late, or a clock that was set, moves no later tick off the multiples.
func (t *Ticker) Next() {
	wait := t.every - past(t.every)
	if wait < t.every/2 {
		wait += t.every
	}
	t.timer.Reset(wait)
}

// Stop ends the ticks.
func (t *Ticker) Stop() { t.timer.Stop() }

// past returns how much of the present period has passed.
func past(period time.Duration) time.Duration {
	p := time.Duration(time.Now().UnixNano()) % period
	if p < 0 { // the clock is before 1970
		p += period
	}
	return p
}
