package replica

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// stuckWatch looks at one replica from within.
type stuckWatch struct {
	r      *Replica
	pulses chan struct{} // an answer of raft's main loop; capacity 1
	asked  time.Time     // when it was asked; zero if no answer is due
	last   time.Time     // when it was asked last and answered
	index  uint64        // applied when it was asked
	bytes  uint64        // of snapshots received by then
}

// pulseEvery is how often raft's main loop is asked: one message through a channel.
const pulseEvery = 5 * time.Second

// look returns why the replica is stuck, nil if it is not.
func (w *stuckWatch) look() error {
	limit := w.r.cfg.StuckAfter
	if age := w.r.prop.oldest(); age > limit && w.r.raft.State() == raft.Leader && w.r.Err() == nil {
		return fmt.Errorf("an entry is under way for %v, and a majority answers", age)
	}
	select {
	case <-w.pulses:
		w.asked, w.last = time.Time{}, w.asked
	default:
	}
	index, bytes := w.r.machine.index(), w.r.net.Received()
	switch {
	case w.asked.IsZero() && time.Since(w.last) >= pulseEvery && w.r.raft.CurrentTerm() > 0:
		w.asked, w.index, w.bytes = time.Now(), index, bytes
		w.r.wg.Add(1) // the caller is counted too, so Close waits already
		w.r.asking.Store(true)
		go func() {
			defer w.r.wg.Done()
			w.r.net.Pulse()
			w.r.asking.Store(false)
			w.pulses <- struct{}{}
		}()
	case w.asked.IsZero():
	case index != w.index || bytes != w.bytes || w.r.guard.oldest() > 0:
		// It is busy: with entries, with a snapshot, or with the disk, which the watchdog minds.
		w.asked, w.index, w.bytes = time.Now(), index, bytes
	case time.Since(w.asked) > limit:
		return fmt.Errorf("raft has not answered for %v", time.Since(w.asked))
	}
	return nil
}
