//go:build linux || darwin || freebsd

package process

import (
	"net/netip"
	"syscall"
)

// maxSegment is the largest TCP segment that a listener on a loopback address agrees to, in bytes: what
// fits an Ethernet frame of 1,500 bytes.
//
// The loopback interface offers segments of 64 KiB. A client whose receive buffer is smaller than one segment closes
// its window after each. The sender's kernel then waits for its probe timer, about 200 ms. Every version of the .NET
// clients sets a receive buffer of 8 KiB.
const maxSegment = 1460

// LimitSegments is the Control function of a listener, which the package net calls with the resolved address. The limit holds for the connections accepted there. It is
// agreed in the handshake, so it is too late to set it on an accepted connection. A system that refuses the option
// costs speed alone, so its error is dropped. A listener on other addresses has no limit: its clients come over
// Ethernet, and smaller segments on loopback cost others.
func LimitSegments(_, address string, c syscall.RawConn) error {
	if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().Unmap().IsLoopback() {
		return nil
	}
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, maxSegment)
	})
}
