package partition

import (
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// unansweredPumps are the pumps of this node's front end of which some attempt was not answered. A copy of it may
// still be under way, in the socket of a process that is paused or behind a cut. It may reach a leader long after the
// client has gone. As long as the partitions remember what the pump was answered, the copy is told the same. Once
// they were told to forget (fsm.DropPumps), it would be applied again.
//
// So such a pump is not dropped. It is forgotten by itself after ten minutes (A6). The mesh lets no link be silent
// for nearly as long, and the kernel repeats no packet for as long. Of any other pump every attempt was answered, so
// the replica that answered had taken it off the wire. The entry that it rode in, if any, has its place in the log
// before the drop. There is no copy that could come later.
type unansweredPumps struct {
	mu    sync.Mutex
	pumps map[pumpOf]time.Time // when the last attempt went unanswered
	since time.Time            // when one was not noted, because there were too many; zero if never
	sweep time.Time
}

type pumpOf struct {
	node fsm.Incarnation
	pump uint64
}

const (
	// unansweredTime is how long a pump is not dropped. Afterwards the partitions have forgotten by
	// themselves whatever it was answered until then.
	unansweredTime = 10 * time.Minute
	// maxUnanswered bounds the pumps noted, some hundred bytes each. With more nothing is dropped for
	// unheardTime, which costs the partitions memory and nothing else.
	maxUnanswered = 1 << 16
	// unansweredSweep is how often those are forgotten whose time is over.
	unansweredSweep = time.Minute
)

// note says that an attempt of a request was not answered.
func (u *unansweredPumps) note(id fsm.RequestID) {
	if id.IsZero() {
		return
	}
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweepLocked(now)
	key := pumpOf{id.Node, id.Pump}
	if _, known := u.pumps[key]; !known && len(u.pumps) >= maxUnanswered {
		u.since = now
		return
	}
	if u.pumps == nil {
		u.pumps = map[pumpOf]time.Time{}
	}
	u.pumps[key] = now
}

func (u *unansweredPumps) sweepLocked(now time.Time) {
	if now.Sub(u.sweep) < unansweredSweep {
		return
	}
	u.sweep = now
	for k, at := range u.pumps { // order-free: each is judged for itself
		if now.Sub(at) >= unansweredTime {
			delete(u.pumps, k)
		}
	}
}

// droppable returns the command without the pumps that may not be dropped, nil if none is left.
func (u *unansweredPumps) droppable(c *fsm.DropPumps) *fsm.DropPumps {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.since.IsZero() && now.Sub(u.since) < unansweredTime {
		return nil
	}
	pumps := make([]uint64, 0, len(c.Pumps))
	for _, p := range c.Pumps {
		if at, noted := u.pumps[pumpOf{c.Node, p}]; !noted || now.Sub(at) >= unansweredTime {
			pumps = append(pumps, p)
		}
	}
	if len(pumps) == 0 {
		return nil
	}
	return &fsm.DropPumps{Node: c.Node, Pumps: pumps}
}
