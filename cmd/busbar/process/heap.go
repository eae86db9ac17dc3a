package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// heapFloor is memory that is counted as live and never touched, so it takes none. A collection begins when there
	// is as much garbage as live data. A node with short queues holds so little that it would collect many times a
	// second. Beside millions of messages it makes no difference.
	heapFloor = 128 << 20
	// smallLimit is the memory limit below which a node keeps to its live data.
	smallLimit = 8 * heapFloor
)

// KeepHeapFloor makes collections rarer, until the returned function is called. An operator who has set GOGC, or a
// small GOMEMLIMIT, knows better.
func KeepHeapFloor() (end func()) {
	if operatorsHeap() {
		return func() {}
	}
	floor := make([]byte, heapFloor) // without pointers: nothing reads it, the collector neither
	giveBack(floor)                  // cleared, and so taken, if the heap has been there before
	return func() { runtime.KeepAlive(floor) }
}

// operatorsHeap reports whether the operator has said how much memory the heap may take.
func operatorsHeap() bool {
	_, set := os.LookupEnv("GOGC")
	return set || debug.SetMemoryLimit(-1) < smallLimit
}

const (
	// largeBytes is from which size on a body makes collections more frequent.
	largeBytes = 16 << 20
	// usualPercent is Go's own: a collection begins when there is as much garbage as live data.
	usualPercent = 100
	// thriftyPercent is that while large bodies are in memory. A body counts as live data, and so would allow as much
	// garbage as it is long, besides that of heapFloor.
	thriftyPercent = 40
	// thriftTime is for how long after the last large body collections stay frequent.
	thriftTime = 5 * time.Second
	// richHeap is the live heap beside which a large body makes no difference, but frequent collections do.
	richHeap = 1 << 30
)

// Thrift makes collections more frequent while large bodies are in memory. So a body of 100 MB takes no more than
// three times its size, garbage included.
type Thrift struct {
	held   func() int // bytes; safe for use by many goroutines
	mu     sync.Mutex
	timer  *time.Timer // nil while collections are as usual
	closed bool
}

// NewThrift returns a thrift that asks held for the bytes of bodies that are held for clients.
func NewThrift(held func() int) *Thrift { return &Thrift{held: held} }

// Large tells of a body that is in memory, or about to be.
func (t *Thrift) Large(bytes int) {
	if bytes < largeBytes || operatorsHeap() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
	case t.timer != nil:
		t.timer.Reset(thriftTime)
	case liveHeap() < richHeap:
		debug.SetGCPercent(thriftyPercent)
		t.timer = time.AfterFunc(thriftTime, t.end)
	}
}

// end has collections be as usual again, once no large body is held. The collection before takes the last one out of
// what counts as live.
func (t *Thrift) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.timer == nil:
	case t.held() >= largeBytes:
		t.timer.Reset(thriftTime)
	default:
		runtime.GC()
		t.usual()
	}
}

// usual undoes what Large did. The caller holds mu.
func (t *Thrift) usual() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
		debug.SetGCPercent(usualPercent)
	}
}

// Close has collections be as usual, for ever.
func (t *Thrift) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.usual()
}

// liveHeap is what the last collection found alive, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
