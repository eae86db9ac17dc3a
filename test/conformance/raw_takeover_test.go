package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
)

const takeOversUnderKills = 12

// TestATakeOverOutlivesItsLeader kills the leader while a session is taken over. The client gets one answer or an error;
// after it has asked again, it alone settles, renews and has the state that its predecessor set. In every other round the
// leader is stopped (SIGSTOP) before the client asks, so that it surely dies with the request. S-330, S-331, S-334; T-283
func TestATakeOverOutlivesItsLeader(t *testing.T) {
	three := startThree(t)
	e := &rawEnv{env: newEnv(t, three, false, 0), wire: raw.Plain}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	e.ctx = ctx
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true), LockDuration: to("PT1M")})
	var seen struct{ over, again int }
	for round := range takeOversUnderKills {
		over, again := e.takeOverUnderKill(q, fmt.Sprint("S", round), round%2 == 0)
		seen.over += over
		seen.again += again
	}
	t.Logf("%d of %d take-overs were under way when the leader died; clients asked %d times more", seen.over, takeOversUnderKills, seen.again)
	e.check(seen.over >= takeOversUnderKills/2, "a stopped leader answered")
}

// bystander makes a node that does not lead the queue the first one of the case, and returns the leader.
func (e *rawEnv) bystander(q string) *cluster.Node {
	e.Helper()
	for {
		leader, err := e.cluster.LeaderOf(q)
		if err == nil {
			for i, n := range e.cluster.Nodes {
				if n != leader {
					e.first = i
					return leader
				}
			}
		}
		e.must("find the leader", e.ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
}

// takeOverUnderKill is one round. It returns whether the leader was killed before the answer came (over is 1), and how
// often the client asked again. A leader that is stopped first does not answer.
func (e *rawEnv) takeOverUnderKill(q, session string, stopped bool) (over, again int) {
	e.Helper()
	leader := e.bystander(q)
	e.c = e.connect(0)
	other := e.connect(0)
	defer e.c.Close()
	defer other.Close()
	tx := e.sender(q)
	for i := range 3 {
		e.deliver(tx, encode(fmt.Sprint(i), group(session)))
	}
	a := e.share(e.c, q, session, nil)
	zero := e.take(a.Handle)
	e.check(zero.Body == "0", "%s came first", zero.Body)
	old, mine := e.asker(q), e.askerOf(other, q)
	e.ask(old, 200, "set-session-state", fields("session-id", session, "session-state", []byte("of the first")))

	if stopped {
		e.must("stop the leader", leader.Freeze())
	}
	struck, killed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killed)
		time.Sleep(rand.N(2 * time.Millisecond))
		close(struck)
		leader.Kill()
	}()
	b, err := other.Share(q, session, &a.Token)
	select {
	case <-struck:
		over = 1
	default:
	}
	for end := time.Now().Add(40 * time.Second); err != nil; time.Sleep(50 * time.Millisecond) {
		switch c := raw.Condition(err); c {
		case "com.microsoft:timeout", "com.microsoft:server-busy", "amqp:internal-error":
		default:
			e.Fatalf("the take-over is answered %v", err)
		}
		e.check(time.Now().Before(end), "the take-over still fails: %v", err)
		b, err = other.Share(q, session, &a.Token)
		again++
	}
	<-killed
	e.must("start the node again", leader.Start())

	e.check(b.Token == a.Token, "the token has changed with the take-over")
	e.refused("the link of the former holder", e.detached(e.c, a.Handle), sessionLockLost)
	got := e.handed(old, 410, session, "completed", zero)
	e.check(got.Condition == sessionLockLost, "a settlement of the former holder: %s", got.Condition)
	got = e.ask(old, 410, "set-session-state", fields("session-id", session, "session-state", []byte("of a former holder")))
	e.check(got.Condition == sessionLockLost, "a state of the former holder: %s", got.Condition)
	state, _ := e.ask(mine, 200, "get-session-state", fields("session-id", session)).Body.Get("session-state")
	e.check(fmt.Sprintf("%s", state) == "of the first", "the state is %s", state)
	e.ask(mine, 200, "set-session-state", fields("session-id", session, "session-state", []byte("of the second")))
	state, _ = e.ask(mine, 200, "get-session-state", fields("session-id", session)).Body.Get("session-state")
	e.check(fmt.Sprintf("%s", state) == "of the second", "the state is %s", state)
	e.handed(mine, 200, session, "completed", zero)
	for _, want := range []string{"1", "2"} {
		m, err := other.Receive(b.Handle)
		e.must("receive after the take-over", err)
		e.check(m.Body == want, "%s came, want %s", m.Body, want)
		e.handed(mine, 200, session, "completed", m)
	}
	wait, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must("wait for the node", leader.WaitReady(wait))
	return over, again
}
