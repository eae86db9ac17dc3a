//go:build loopcheck && (amd64 || arm64)

package transport

// currentGoroutine is the address of what the runtime knows of the calling goroutine. No two goroutines that live at a
// time have the same. It takes a nanosecond. A stack trace tells a number, and takes microseconds at each of the
// assertions of a message.
func currentGoroutine() uintptr
