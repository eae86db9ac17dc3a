package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestHeapFloorCountsAndTakesNoMemory looks at a process of its own, whose heap has been where the floor
// begins: the whole of such memory is cleared, and so was taken.
func TestHeapFloorCountsAndTakesNoMemory(t *testing.T) {
	const inside = "BUSBAR_TEST_HEAP_FLOOR"
	if os.Getenv(inside) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(self, "-test.run=^"+t.Name()+"$")
		child.Env = []string{inside + "=1"}
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	var before, during runtime.MemStats
	used := make([]byte, heapFloor/16)
	for i := range used {
		used[i] = 1
	}
	runtime.KeepAlive(used)
	runtime.GC()
	runtime.ReadMemStats(&before)
	resident := residentBytes(t)
	end := KeepHeapFloor()
	runtime.GC()
	runtime.ReadMemStats(&during)
	grown := residentBytes(t) - resident
	end()
	if during.NextGC < before.NextGC+heapFloor {
		t.Errorf("the next collection is due at %d, before at %d", during.NextGC, before.NextGC)
	}
	if grown > heapFloor/4 {
		t.Errorf("the process grew by %d bytes of %d", grown, heapFloor)
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
		defer KeepHeapFloor()()
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
		defer KeepHeapFloor()()
		if live() > before+heapFloor/2 {
			t.Error("it is kept although memory is scarce")
		}
	})
}
