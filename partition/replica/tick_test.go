package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Entries of clients put no Tick off: more is due at one time than a Tick handles, and it comes while the partition is never
// quiet. S-111, S-288.
func TestOtherEntriesPutNoTickOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stamper
		s.lead(0, 1000)
		var tick ticker
		noon := clocks{dueWall: fsm.Wall(time.Now().UnixMilli())} // of more messages than all the Ticks handle
		ticks := 0
		const between = tickPause / 5 // two entries
		for range 100 {
			if tick.due(noon, &s) {
				ticks++
			}
			tick.reset(time.Now())
			time.Sleep(between)
		}
		if most := int(100 * between / tickPause); ticks < most-1 || ticks > most+1 {
			t.Errorf("%d Ticks in %v, want about %d", ticks, 100*between, most)
		}
	})
}
