package process

import (
	"errors"
	"runtime"
	"sync"
	"time"
)

// Go's runtime has a monitor thread that looks after the others every 20 µs as long as anything runs. A node wakes
// and sleeps thousands of times a second, so that thread alone took a fifth of its CPU time. Linux lets the sleeps of
// a thread end later than asked: with monitorSlack the monitor looks 250 times a second. A thread that waits for the
// disk gives up its processor later to goroutines that have none. Most syncs are over long before, and a goroutine is
// interrupted after 10 ms.
const monitorSlack = 4 * time.Millisecond

// spareThreads are started before: threads inherit the slack of the one that starts them, and the
// monitor starts some when there are none to spare.
const spareThreads = 16

// errNoMonitor says that the threads do not look as expected, so none is touched.
var errNoMonitor = errors.New("the runtime's monitor thread was not recognised")

// QuietRuntime gives the monitor thread its slack. The error says why not; the node runs as well
// without.
func QuietRuntime() error {
	startThreads(spareThreads)
	monitor, err := findMonitor()
	if err != nil {
		return err
	}
	return setSlack(monitor, monitorSlack)
}

// startThreads makes the runtime have at least n threads; they stay.
func startThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}
