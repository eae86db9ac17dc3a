//go:build !loopcheck

package transport

// loopOwner is the mark of a connection's loop. With the build tag loopcheck it remembers the goroutine that takes its turns; here it
// has no size, and its methods cost nothing.
type loopOwner struct{}

// ownLoop makes the calling goroutine the loop's.
func (*loopOwner) ownLoop() {}

// disownLoop makes the loop nobody's.
func (*loopOwner) disownLoop() {}

// onLoop asserts that the calling goroutine is the loop's. Every method of a channel, a link, a link's end, a settler, a
// held session and a transaction begins with it; test/arch looks.
func (*loopOwner) onLoop() {}
