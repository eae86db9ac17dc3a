package cluster

import (
	"fmt"
	"testing"
	"time"
)

// A node that stops while the others are out of reach waits for one attempt to reach one of them at most.
func TestAStopDoesNotWaitForEverySeed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		cfg := s.config(1, 1)
		cfg.Join = nil
		for i := range 8 {
			ip := fmt.Sprintf("10.0.1.%d", i+1)
			cfg.Join = append(cfg.Join, ip+":5302")
			s.net.Cut(simIP(1), ip)
		}
		n := s.start(cfg, simIP(1))
		time.Sleep(time.Second)
		began := time.Now() // of the bubble's clock
		n.stop()
		if took := time.Since(began); took > gossipStreamTimeout {
			t.Errorf("the stop took %v", took)
		}
	})
}
