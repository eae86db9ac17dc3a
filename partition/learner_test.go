package partition

import (
	"testing"
	"time"
)

// Two replicas of three had no vote for a while, in which their leader was a majority by itself. It goes on leading when one of
// them gets its vote, and nothing is written: they answer its beats (decision 0102).
func TestALeaderOutlivesTheFirstVoteOfAnother(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		for _, lasts := range []time.Duration{time.Second, 20 * time.Second, time.Minute} {
			leader := quiet(t, c)
			for _, id := range c.others(leader.Node()) {
				if err := leader.Demote(id, 0).Error(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(lasts)
			term := termOf(leader)
			for _, id := range c.others(leader.Node()) {
				if err := leader.AddVoter(id, 0).Error(); err != nil {
					t.Fatal(err)
				}
				for range 60 * 10 {
					time.Sleep(100 * time.Millisecond)
					if !leader.Leading() || termOf(leader) != term {
						t.Fatalf("%v without another vote: the leader of term %d leads no more after %s got its vote", lasts, term, id)
					}
				}
			}
		}
	})
}
