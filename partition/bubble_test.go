package partition

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// bubble runs f in a bubble of its own, and lets goroutines be left in it that wait for a future of
// raft: when it shuts down it can forget one, and whoever waits for it does so for ever. In a process
// that ends it does not matter; any other goroutine that is left is a defect.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
			panic(p)
		}
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, g := range strings.Split(string(stacks), "\n\n") {
			head, _, _ := strings.Cut(g, "\n")
			if strings.Contains(head, "synctest bubble") && !strings.Contains(g, "raft.(*deferError).Error") {
				t.Errorf("a goroutine never ends:\n%s", g)
			}
		}
	}()
	synctest.Test(t, f)
}
