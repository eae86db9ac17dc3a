package simnet

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Test runs f in a synctest bubble of its own. Use it instead of synctest.Test wherever the mesh
// runs. The multiplexer below it keeps timers in a process-wide sync.Pool. A timer of one bubble
// that is used outside it, or the other way round, is fatal to the process. Two collections empty
// the pool, before and after. Tests that use it must not run in parallel with others of their
// process.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) {
		// Time stands still once this function has returned, and a library that was shut down may still
		// be waiting for some to pass.
		defer time.Sleep(windDown)
		f(t)
	})
}

// windDown is virtual time: longer than any timer of the libraries on the network.
const windDown = 10 * time.Minute

// emptyPools relies on what sync.Pool documents as its purpose and implements as two generations.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}
