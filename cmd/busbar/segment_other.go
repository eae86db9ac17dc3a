//go:build !linux && !darwin && !freebsd

package main

import "syscall"

// limitSegments does nothing: this system has no such option.
func limitSegments(_, _ string, _ syscall.RawConn) error { return nil }
