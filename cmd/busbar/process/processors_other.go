//go:build !unix

package process

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var made, ended, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &made, &ended, &kernel, &user); err != nil {
		return 0
	}
	time100 := func(t syscall.Filetime) int64 { return int64(t.HighDateTime)<<32 + int64(t.LowDateTime) }
	return time.Duration(100 * (time100(kernel) + time100(user)))
}
