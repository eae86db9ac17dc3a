package notify

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic returns the clock that systemd compares reloads with.
func monotonic() (time.Duration, bool) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, false
	}
	return time.Duration(now.Nano()), true
}
