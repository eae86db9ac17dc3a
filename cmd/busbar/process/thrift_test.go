package process

import (
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// percent is the part of the live heap that garbage may reach, as it is set now.
func percent() int {
	p := debug.SetGCPercent(usualPercent)
	debug.SetGCPercent(p)
	return p
}

// RUL-25: collections are frequent from the first large body until some time after the last, and as before then.
func TestLargeBodiesMakeCollectionsFrequent(t *testing.T) {
	if value, set := os.LookupEnv("GOGC"); set {
		t.Setenv("GOGC", value)
		os.Unsetenv("GOGC")
	}
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		h := NewThrift(func() int { return int(held.Load()) })
		want := func(when string, p int) {
			t.Helper()
			synctest.Wait()
			if got := percent(); got != p {
				t.Errorf("%s: %d percent, want %d", when, got, p)
			}
		}
		h.Large(largeBytes - 1)
		want("a small body", usualPercent)
		h.Large(largeBytes)
		want("a large body", thriftyPercent)
		time.Sleep(thriftTime - time.Second)
		h.Large(largeBytes)
		time.Sleep(thriftTime - time.Second)
		want("another one", thriftyPercent)
		held.Store(largeBytes)
		time.Sleep(3 * thriftTime)
		want("it is still held", thriftyPercent)
		held.Store(0)
		time.Sleep(2 * thriftTime)
		want("it is gone", usualPercent)
		h.Large(largeBytes)
		h.Close()
		want("the node ends", usualPercent)
		h.Large(largeBytes)
		want("it has ended", usualPercent)
	})
}

func TestTheOperatorsGOGCStays(t *testing.T) {
	t.Setenv("GOGC", "100")
	h := NewThrift(func() int { return 0 })
	defer h.Close()
	h.Large(10 * largeBytes)
	if got := percent(); got != usualPercent {
		t.Errorf("%d percent although GOGC is set", got)
	}
}
