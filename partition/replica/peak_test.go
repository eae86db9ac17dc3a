package replica

import (
	"sync"
	"testing"
	"time"
)

func TestPeakKeepsTheLongest(t *testing.T) {
	var p peak
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				p.note(time.Duration(j*8 + i))
			}
		})
	}
	wg.Wait()
	if got := p.longest(); got != 7999 {
		t.Errorf("longest is %d, want 7999", got)
	}
}
