//go:build loopcheck

package transport

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A method of a channel that another goroutine calls ends the process.
func TestTheLoopIsAsserted(t *testing.T) {
	const offLoop = "BUSBAR_TEST_OFF_LOOP"
	if os.Getenv(offLoop) != "" {
		ch := &channel{c: &conn{}}
		ch.busy() // no loop yet
		ch.c.ownLoop()
		ch.busy()
		done := make(chan struct{})
		go func() {
			defer close(done)
			ch.busy()
		}()
		<-done
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTheLoopIsAsserted$")
	cmd.Env = append(os.Environ(), offLoop+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != offLoopExit || !strings.Contains(string(out), "uses a connection of the loop") {
		t.Errorf("%v: %s", err, out)
	}
}
