//go:build !loopcheck

package transport

// loopOwner is the mark of a connection's loop. With the build tag loopcheck it remembers the loop's goroutine; here it
// has no size, and its methods cost nothing.
type loopOwner struct{}

// ownLoop makes the calling goroutine the loop's.
func (*loopOwner) ownLoop() {}

// onLoop asserts that the calling goroutine is the loop's. Every method of a channel, a link, a link's end, a settler, a
// held session and a transaction begins with it; test/arch looks.
func (*loopOwner) onLoop() {}
