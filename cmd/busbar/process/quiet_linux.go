package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// monitorSamples is how often every thread is looked at, and monitorSeen in how many of them the monitor sleeps
	// at least. monitorOnly is how many times as often as any other thread it must sleep.
	monitorSamples = 80
	monitorSeen    = 10
	monitorOnly    = 5
)

// findMonitor returns the id of the runtime's monitor thread: nobody else sleeps by nanosleep(2) but
// for an odd moment.
func findMonitor() (tid int, err error) {
	asleep := strconv.Itoa(syscall.SYS_NANOSLEEP) + " "
	seen := map[string]int{}
	for range monitorSamples {
		threads, err := filepath.Glob("/proc/self/task/*/syscall")
		if err != nil {
			return 0, err
		}
		for _, name := range threads {
			text, err := os.ReadFile(name)
			if err == nil && strings.HasPrefix(string(text), asleep) {
				seen[name]++
			}
		}
		runtime.Gosched()
	}
	var most, second int
	var found string
	for name, n := range seen { // order-free: there is one with the most, or it does not count
		if n > most {
			found, most, second = name, n, most
		} else {
			second = max(second, n)
		}
	}
	if most < monitorSeen || most < monitorOnly*second {
		return 0, errNoMonitor
	}
	return strconv.Atoi(filepath.Base(filepath.Dir(found)))
}

func slackFile(tid int) string { return fmt.Sprintf("/proc/%d/timerslack_ns", tid) }

// setSlack needs CAP_SYS_NICE: the thread is another than the caller.
func setSlack(tid int, slack time.Duration) error {
	f, err := os.OpenFile(slackFile(tid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(slack.Nanoseconds(), 10))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("timer slack of the runtime's monitor (it needs CAP_SYS_NICE): %w", err)
	}
	return nil
}
