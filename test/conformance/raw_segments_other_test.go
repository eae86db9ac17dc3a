//go:build !linux

package conformance

import (
	"errors"
	"net"
)

// segmentBytes is the largest segment of a connection, which is told on Linux only.
func segmentBytes(*net.TCPConn) (int, error) { return 0, errors.ErrUnsupported }
