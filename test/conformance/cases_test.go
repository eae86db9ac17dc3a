package conformance

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// startLimit bounds the start of a cluster.
const startLimit = 90 * time.Second

// oneCaseAtATime makes a failure easier to read in the broker's log.
var oneCaseAtATime = flag.Bool("serial", false, "run the cases one after the other")

// cases are what a user of the SDK relies on; each runs in plain text and over TLS, against one node
// and against three, where its clients sit on different nodes.
var cases = []struct {
	name string
	run  func(*env)
}{
	{"a queue is created, listed, updated and deleted", queueLifecycle},
	{"a missing queue is not found", missingQueue},
	{"a sent message is received and completed", sendReceiveComplete},
	{"a message's properties come back as they were", propertiesRoundTrip},
	{"a batch holds as much as the link allows", batchLimit},
	{"a message above the limit is refused", messageTooLarge},
	{"a pre-settled send arrives without an answer", preSettled},
	{"a message of 1 MiB passes in small frames", smallFrames},
	{"a receiver gets what is sent while it waits", longPoll},
	{"peek shows and takes nothing", peek},
	{"receive-and-delete takes at once", receiveAndDelete},
	{"abandon returns the message with a higher count", abandon},
	{"an abandoned message rests for as long as its client asks", abandonWithDelay},
	{"a dead-lettered message is read with its reason", deadLetter},
	{"a message dead-lettered from the dead letters is refused", deadLetterTwice},
	{"a renewed lock outlives its duration", renewLock},
	{"an expired lock loses the message", lockExpiry},
	{"the last allowed delivery dead-letters", maxDeliveries},
	{"a token settles on another connection", settleElsewhere},
	{"a token settles once", settleOnce},
	{"a closed link keeps its locks", closedLinkKeepsLocks},
	{"a partitioned queue gives every message once", partitioned},
	{"a named session gives its messages in order", sessionNamed},
	{"the next session is one with messages", sessionNext},
	{"no session in time is a time-out", sessionNone},
	{"a session held by another cannot be locked", sessionHeld},
	{"a closed session is free at once and counts nothing", sessionClose},
	{"an abandoned message is next in its session", sessionAbandon},
	{"a deferred message is received within its session", sessionDefer},
	{"a renewed session outlives its duration", sessionRenew},
	{"an expired session raises the counts", sessionExpiry},
	{"session state is kept until it is cleared", sessionState},
	{"a large session state comes back whole", largeSessionState},
	{"a large message comes back whole from every way to read it", largeMessage},
	{"a session queue wants sessions", sessionGuard},
	{"a session's dead letters need no session", sessionDeadLetter},
	{"a wrong key is unauthorized", wrongKey},
	{"a shared access signature is enough", signature},
	{"keys of a queue open it on every node", entityKeys},
	{"labels pass, and numbers tell distances", sessionLabels},
	{"schedules have numbers, and one of cancel and activation wins", schedules},
	{"a handler schedules what comes next", reschedules},
	{"a receiver that was too late waits on", losersWaitOn},
	{"of two that wait for a session one gets it", waitersForSessions},
	{"a redelivery has the id and number of the first", redelivered},
	{"a disabled queue keeps its dead letters", disabledDeadLetters},
	{"a receiver peeks on from where it was", peeksOn},
	{"only a session orders what is done", onlySessionsOrderWork},
}

func TestOneNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	n, err := cluster.StartSingle(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Nodes: []*cluster.Node{n}}
	t.Cleanup(func() { end(t, c) })
	runCases(t, c)
}

func TestThreeNodes(t *testing.T) {
	runCases(t, startThree(t))
}

// startThree starts three nodes for the time of a test.
func startThree(t *testing.T) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, c) })
	return c
}

// end stops the nodes and shows what they said if the test failed.
func end(t *testing.T, c *cluster.Cluster) {
	for _, n := range c.Nodes {
		if n.Pid() == 0 {
			t.Errorf("%s died during the test", n.ID)
		}
		n.Stop()
		if t.Failed() {
			t.Logf("%s printed at last:\n%s", n.ID, n.Log(4000))
		}
	}
}

func runCases(t *testing.T, c *cluster.Cluster) {
	for _, wire := range []struct {
		name   string
		secure bool
	}{{"plain", false}, {"TLS", true}} {
		t.Run(wire.name, func(t *testing.T) {
			for i, tc := range cases {
				t.Run(tc.name, func(t *testing.T) {
					if !*oneCaseAtATime {
						t.Parallel()
					}
					tc.run(newEnv(t, c, wire.secure, i))
				})
			}
		})
	}
}
