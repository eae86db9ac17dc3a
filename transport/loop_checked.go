//go:build loopcheck

package transport

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
)

// loopOwner remembers the goroutine of a connection's loop. This form is built with the tag loopcheck, as
// `make test` does.
type loopOwner struct{ id atomic.Uint64 }

// ownLoop makes the calling goroutine the loop's.
func (o *loopOwner) ownLoop() { o.id.Store(goroutineID()) }

// onLoop ends the process if another goroutine than the loop's calls it. A recovered panic would end one connection
// only, which a test may not notice. A connection without a loop, as in a test of one part, is nobody's.
func (o *loopOwner) onLoop() {
	owner := o.id.Load()
	if owner == 0 {
		return
	}
	if id := goroutineID(); id != owner {
		fmt.Fprintf(os.Stderr, "transport: goroutine %d uses a connection of the loop on goroutine %d\n%s", id, owner, debug.Stack())
		os.Exit(offLoopExit)
	}
}

// offLoopExit is the exit code of a process in which onLoop failed.
const offLoopExit = 96

// goroutineID reads the number of the calling goroutine from its stack trace, which is the only place that tells it.
func goroutineID() uint64 {
	var room [64]byte
	text := bytes.TrimPrefix(room[:runtime.Stack(room[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(text, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		panic("transport: no goroutine in a stack trace: " + err.Error())
	}
	return id
}
