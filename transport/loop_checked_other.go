//go:build loopcheck && !amd64 && !arm64

package transport

import (
	"bytes"
	"runtime"
	"strconv"
)

// currentGoroutine reads the number of the calling goroutine from its stack trace.
func currentGoroutine() uintptr {
	var room [64]byte
	text := bytes.TrimPrefix(room[:runtime.Stack(room[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(text, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		panic("transport: no goroutine in a stack trace: " + err.Error())
	}
	return uintptr(id)
}
