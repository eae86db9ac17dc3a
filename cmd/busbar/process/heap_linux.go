package process

import "syscall"

// giveBack tells the system that the zeros of b need no memory; they are zeros when they are read
// again. It is advice: where it fails the memory stays taken, and nothing else changes.
func giveBack(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) }
