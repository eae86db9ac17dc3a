package partition

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// parallel has the tests that have called Parallel. A test may have several bubbles, and a second call panics.
var parallel sync.Map

// beside lets a test run beside others: a bubble keeps one processor busy.
func beside(t *testing.T) {
	t.Helper()
	if _, again := parallel.LoadOrStore(t, true); !again {
		t.Parallel()
	}
}

// inBubble runs f in a bubble of its own, beside the bubbles of other tests. A test that measures memory calls synctest.Test
// and so runs alone.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	beside(t)
	synctest.Test(t, f)
}

// bubble runs f in a bubble of its own, and lets goroutines be left in it that wait for a future of
// raft: when it shuts down it can forget one, and whoever waits for it does so for ever. In a process
// that ends it does not matter; any other goroutine that is left is a defect, unless one of its frames
// is among those that the test says wedge.
func bubble(t *testing.T, f func(t *testing.T), stuck ...string) {
	t.Helper()
	beside(t)
	stuck = append(stuck, "raft.(*deferError).Error")
	number := ""
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
			panic(p)
		}
		for _, g := range strings.Split(stacks(true), "\n\n") {
			head, _, _ := strings.Cut(g, "\n")
			known := slices.ContainsFunc(stuck, func(w string) bool { return strings.Contains(g, w) })
			if bubbleNumber.FindString(head) == number && !known {
				t.Errorf("a goroutine never ends:\n%s", g)
			}
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		if number = bubbleNumber.FindString(stacks(false)); number == "" {
			t.Fatal("stacks do not tell the number of their bubble")
		}
		f(t)
	})
}

// bubbleNumber is how a stack says which bubble its goroutine is of. Those of earlier tests may be left.
var bubbleNumber = regexp.MustCompile(`synctest bubble \d+`)

func stacks(all bool) string {
	b := make([]byte, 16<<20)
	return string(b[:runtime.Stack(b, all)])
}
