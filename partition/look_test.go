package partition

import (
	"testing"
	"testing/synctest"
	"time"
)

// F3: who looks whether a replica advances does not wait for an entry that takes long to apply.
func TestALookAtAReplicaDoesNotWaitForItsMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.open(1)
		defer c.close()
		r := c.leader(1)
		r.machine.mu.Lock() // as an entry does
		looked := make(chan Status)
		go func() { looked <- r.Status() }()
		select {
		case s := <-looked:
			if s.Applied == 0 {
				t.Error("the replica has applied nothing")
			}
		case <-time.After(time.Minute):
			t.Error("the look waits")
			r.machine.mu.Unlock()
			<-looked
			return
		}
		r.machine.mu.Unlock()
	})
}
