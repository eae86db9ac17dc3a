package conformance

import (
	"net"
	"syscall"
)

// segmentBytes is the largest segment of a connection.
func segmentBytes(c *net.TCPConn) (size int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	inside := raw.Control(func(fd uintptr) {
		size, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG)
	})
	if err == nil {
		err = inside
	}
	return size, err
}
