//go:build unix

package process

import (
	"math"
	"syscall"
)

// MaxDescriptors returns how many files the process may have open. The runtime has raised the limit as far as the
// machine lets it. known is false if the system does not tell.
func MaxDescriptors() (n int, known bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)), true
}
