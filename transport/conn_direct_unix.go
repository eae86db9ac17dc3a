//go:build unix

package transport

import (
	"errors"
	"syscall"
)

// writeNow writes what a socket that does not block takes now.
func writeNow(fd uintptr, buf []byte) (n int, err error) {
	for {
		n, err = syscall.Write(int(fd), buf)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}
