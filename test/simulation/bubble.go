package simulation

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cluster/simnet"
)

// leaks are goroutines that may be left when everything is closed. Raft can forget a future when it shuts down, and
// whoever waits for it does so for ever. In a process that ends it does not matter.
var leaks = []string{"raft.(*deferError).Error"}

// bubble runs f in a bubble of its own and says what was left of it, which synctest takes for a
// deadlock. allowed is how many goroutines of the known kind there were.
func bubble(t *testing.T, f func(t *testing.T)) (allowed int, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		text := fmt.Sprint(p)
		if !strings.Contains(text, "blocked goroutines remain") {
			panic(p)
		}
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, g := range strings.Split(string(stacks), "\n\n") {
			head, _, _ := strings.Cut(g, "\n")
			switch {
			case !strings.Contains(head, "synctest bubble"):
			case known(g):
				allowed++
			default:
				err = fmt.Errorf("a goroutine never ends:\n%s", g)
			}
		}
	}()
	simnet.Test(t, f)
	return 0, nil
}

func known(stack string) bool {
	for _, l := range leaks {
		if strings.Contains(stack, l) {
			return true
		}
	}
	return false
}
