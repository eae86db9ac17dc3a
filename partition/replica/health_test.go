package replica

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// faultyMembers is a store whose disk takes its time for a change of the members, and then fails.
type faultyMembers struct {
	*raft.InmemStore
	fails chan struct{} // closed when it does
}

func (s faultyMembers) StoreLogs(l []*raft.Log) error {
	if l[0].Type == raft.LogConfiguration && l[0].Index > 1 {
		<-s.fails
		return errors.New("the disk is gone")
	}
	return s.InmemStore.StoreLogs(l)
}

// A15: whoever waits for a replica hears that it failed, though raft fails before it takes the entry. Its loop never comes back to
// take one.
func TestWhoWaitsForRaftHearsOfItsFailure(t *testing.T) {
	var store faultyMembers
	exchange := func(s *Stores) {
		store = faultyMembers{raft.NewInmemStore(), make(chan struct{})}
		s.Log, s.Stable = store, store
	}
	aloneWith(t, exchange, func(t *testing.T, r *Replica, _ *counter) {
		go func() { _ = r.AddNonvoter("n2", 0).Error() }()
		synctest.Wait() // raft writes
		answers := make(chan error, 2)
		for n := range uint64(2) { // the first is given to raft, the second waits for the next entry
			go func() {
				_, err := r.Propose(t.Context(), counted(n+1))
				answers <- err
			}()
			synctest.Wait()
		}
		close(store.fails)
		for range 2 {
			select {
			case err := <-answers:
				if !errors.Is(err, fsm.ErrUnknown) && !errors.Is(err, fsm.ErrNotLeader) {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Errorf("no answer in a minute; the replica failed: %v", r.Failure())
			}
		}
	})
}
