package process

import (
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster/tick"
)

const (
	// processorsLook is the time between two looks at how busy the process is.
	processorsLook = 250 * time.Millisecond
	// busyShare is how much of its processors the process may use before it gets all that there are. idleShare is how much
	// it may use of those that it is left with. They are far apart, so that the number does not go up and down.
	busyShare, idleShare = 0.65, 0.4
	// oneShare is how much of a processor the process may use on several to be left with one. The same load then takes about
	// 0.6 of that.
	oneShare = 1.0
	// calmLooks is how many looks in a row must find fewer processors enough. If they turn out not to be, it takes twice as
	// many looks before they are tried again, up to tryLooks.
	calmLooks, tryLooks = 8, 256
)

// AdaptProcessors has the Go runtime use as many processors as the load needs, until the returned function is called. With
// more than that the runtime wakes a thread for each goroutine that gets something to do. The thread finds it done
// already. A third of the CPU time of a node with little work goes there (decision 0103). An operator who has set
// GOMAXPROCS knows better.
func AdaptProcessors() (end func()) {
	if _, set := os.LookupEnv("GOMAXPROCS"); set {
		return func() {}
	}
	return adaptTo(cpuTime)
}

// adaptTo does so for a process that has used as much CPU time as a function says.
func adaptTo(cpuTime func() time.Duration) (end func()) {
	stop := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		t := tick.Every(processorsLook)
		defer t.Stop()
		c := chooser{most: runtime.GOMAXPROCS(0)}
		c.now = c.most
		used, at := cpuTime(), time.Now()
		for {
			select {
			case <-stop:
				runtime.SetDefaultGOMAXPROCS()
				return
			case <-t.C:
				t.Next()
			}
			before, since := used, at
			used, at = cpuTime(), time.Now()
			switch was := c.now; {
			case c.look(used-before, at.Sub(since)) == was:
			case c.now == c.most:
				// The machine, or the limit of the container, may have another number than before.
				runtime.SetDefaultGOMAXPROCS()
				c.most = runtime.GOMAXPROCS(0)
				c.now = c.most
			default:
				runtime.GOMAXPROCS(c.now)
			}
		}
	})
	return func() { close(stop); loop.Wait() }
}

// chooser decides how many processors are enough.
type chooser struct {
	most, now int
	calm      int // looks in a row that found fewer enough
	needed    int // the most that one of them found needed
	pause     int // how many such looks in a row lower the number, 0 for calmLooks
	lasted    int // looks since the number was lowered
}

// look takes the CPU time that the process has used in a time, and returns how many processors it is to have.
func (c *chooser) look(used, elapsed time.Duration) int {
	if elapsed <= 0 {
		return c.now
	}
	cores := float64(used) / float64(elapsed)
	c.pause = max(c.pause, calmLooks)
	c.lasted++
	if cores > busyShare*float64(c.now) {
		c.raise()
		return c.now
	}
	need := max(1, int(math.Ceil(cores/idleShare)))
	if cores <= oneShare {
		need = 1
	}
	if need >= c.now {
		c.calm, c.needed = 0, 0
		return c.now
	}
	c.calm, c.needed = c.calm+1, max(c.needed, need)
	if c.calm >= c.pause {
		c.now, c.calm, c.needed, c.lasted = c.needed, 0, 0, 0
	}
	return c.now
}

// raise gives the process all processors. If a smaller number lasted no longer than the pause before it, the try failed:
// the pause before the next try is twice as long.
func (c *chooser) raise() {
	if c.now < c.most {
		if c.lasted > c.pause {
			c.pause = calmLooks
		} else {
			c.pause = min(2*c.pause, tryLooks)
		}
	}
	c.now, c.calm, c.needed = c.most, 0, 0
}
