package conformance

import (
	"context"
	"crypto/sha256"
	"runtime"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// largestMB is the size of the largest message that an entity takes.
const largestMB = 100

// RUL-25, S-226: one message of 100 MB takes at most three times its size of resident memory on any node, garbage
// included, with the settings that users get: while it is sent through one node and while it is received through
// another. The clients are processes of their own, so nothing of theirs counts.
func TestALargeMessageTakesThreeTimesItsSizeAtMost(t *testing.T) {
	c := startThree(t)
	e := newEnv(t, c, false, 0)
	var stop context.CancelFunc
	e.ctx, stop = context.WithTimeout(t.Context(), 3*largeLimit)
	defer stop()
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(102_400)), LockDuration: to("PT5M")})
	e.send(e.sender(e.client(0), q), text("the first one"))
	e.complete(e.receiver(e.client(1), q, nil), e.one(e.receiver(e.client(1), q, nil)))
	body := make([]byte, largestMB<<20-4096)
	copy(body, largeBody())
	want := sha256.Sum256(body)

	s, r := e.sender(e.client(0), q), e.receiver(e.client(1), q, nil)
	e.takes("send", int64(len(body)), func() { e.send(s, &azservicebus.Message{Body: body}) })
	runtime.GC() // of this process, which shares the machine
	e.takes("receive", int64(len(body)), func() {
		m := e.one(r)
		e.check(sha256.Sum256(m.Body) == want, "the body of %d bytes is another one", len(m.Body))
		e.complete(r, m)
	})
}

// takes measures how much resident memory each node takes at most while f runs.
func (e *env) takes(what string, size int64, f func()) {
	e.Helper()
	base := make([]int64, len(e.cluster.Nodes))
	for i, n := range e.cluster.Nodes {
		var err error
		base[i], err = n.RSS()
		e.must("memory", err)
		e.must("reset the peak", n.ResetPeak())
	}
	f()
	for i, n := range e.cluster.Nodes {
		peak, err := n.Peak()
		e.must("peak", err)
		after, err := n.RSS()
		e.must("memory", err)
		took := peak - base[i]
		e.Logf("%s, %s: %d MiB before, %d at most, %d after: %.2f times the message", what, n.ID, base[i]>>20, peak>>20,
			after>>20, float64(took)/float64(size))
		e.check(took <= 3*size, "%s took %d bytes more memory on %s, a message has %d", what, took, n.ID, size)
	}
}
