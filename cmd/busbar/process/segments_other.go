//go:build !linux && !darwin && !freebsd

package process

import "syscall"

// LimitSegments does nothing: this system has no such option.
func LimitSegments(_, _ string, _ syscall.RawConn) error { return nil }
