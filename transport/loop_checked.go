//go:build loopcheck

package transport

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// loopOwner remembers the goroutine of a connection's loop. This form is built with the tag loopcheck, as
// `make test` does.
type loopOwner struct{ goroutine atomic.Uintptr }

// ownLoop makes the calling goroutine the loop's.
func (o *loopOwner) ownLoop() { o.goroutine.Store(currentGoroutine()) }

// disownLoop makes the loop nobody's: no goroutine may use it.
func (o *loopOwner) disownLoop() { o.goroutine.Store(nobody) }

// nobody is no address of a goroutine.
const nobody = ^uintptr(0)

// onLoop ends the process if another goroutine than the loop's calls it. A recovered panic would end one connection
// only, which a test may not notice. A connection without a loop, as in a test of one part, is nobody's.
func (o *loopOwner) onLoop() {
	owner := o.goroutine.Load()
	if owner == 0 || owner == currentGoroutine() {
		return
	}
	fmt.Fprintf(os.Stderr, "transport: a goroutine uses a connection of the loop on another goroutine\n%s", debug.Stack())
	os.Exit(offLoopExit)
}

// offLoopExit is the exit code of a process in which onLoop failed.
const offLoopExit = 96
