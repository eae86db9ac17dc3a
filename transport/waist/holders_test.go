package waist

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The names of ended links and the lives of a node have bounds.
func TestHoldersAreBounded(t *testing.T) {
	h := Holders{names: map[uint64]Holder{}}
	for pump := range uint64(maxHolders + 10) {
		h.names[pump] = Holder{Client: "c"}
		h.End(pump)
	}
	for life := range fsm.Incarnation(2 * maxLives) {
		h.born(life)
	}
	if len(h.names) != maxHolders || len(h.ended) != maxHolders || len(h.lives) != maxLives || h.lives[0] != maxLives {
		t.Errorf("%d names, %d ended, lives %v", len(h.names), len(h.ended), h.lives)
	}
}

func TestHoldersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Holders
		h.Begin(1, Holder{Client: "c"})
		h.End(1)
		time.Sleep(holderTime + time.Second)
		h.End(99)
		if len(h.names)+len(h.ended) != 0 {
			t.Errorf("%d names of links that ended long ago, %d ends", len(h.names), len(h.ended))
		}
	})
}
