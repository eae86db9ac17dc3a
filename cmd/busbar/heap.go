package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// heapFloor is memory that is counted as live and never touched, so it takes none: a collection
	// begins when there is as much garbage as live data, and a node with short queues holds so little
	// that it would collect many times a second. Beside millions of messages it makes no difference.
	heapFloor = 128 << 20
	// smallLimit is the memory limit below which a node keeps to its live data.
	smallLimit = 8 * heapFloor
)

// keepHeapFloor makes collections rarer, until the returned function is called. Whoever has set
// GOGC, or a small GOMEMLIMIT, knows better.
func keepHeapFloor() (end func()) {
	if _, set := os.LookupEnv("GOGC"); set || debug.SetMemoryLimit(-1) < smallLimit {
		return func() {}
	}
	floor := make([]byte, heapFloor) // without pointers: nothing reads it, the collector neither
	giveBack(floor)                  // cleared, and so taken, if the heap has been there before
	return func() { runtime.KeepAlive(floor) }
}
