package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestHeapFloorCountsAndTakesNoMemory(t *testing.T) {
	if value, set := os.LookupEnv("GOGC"); set {
		t.Setenv("GOGC", value) // restores it
		os.Unsetenv("GOGC")
	}
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	resident := residentBytes(t)
	end := keepHeapFloor()
	runtime.GC()
	runtime.ReadMemStats(&during)
	grown := residentBytes(t) - resident
	end()
	if grown > heapFloor/4 {
		t.Errorf("the process grew by %d bytes of %d", grown, heapFloor)
	}
	if during.NextGC < before.NextGC+heapFloor {
		t.Errorf("the next collection is due at %d, before at %d", during.NextGC, before.NextGC)
	}
}

// residentBytes is the memory that this process really has, 0 where nobody tells.
func residentBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

func TestHeapFloorYieldsToTheOperator(t *testing.T) {
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	t.Run("GOGC", func(t *testing.T) {
		t.Setenv("GOGC", "100")
		defer keepHeapFloor()()
		if live() > before+heapFloor/2 {
			t.Error("it is kept although GOGC is set")
		}
	})
	t.Run("a small GOMEMLIMIT", func(t *testing.T) {
		if value, set := os.LookupEnv("GOGC"); set {
			t.Setenv("GOGC", value)
			os.Unsetenv("GOGC")
		}
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(smallLimit - 1))
		defer keepHeapFloor()()
		if live() > before+heapFloor/2 {
			t.Error("it is kept although memory is scarce")
		}
	})
}
