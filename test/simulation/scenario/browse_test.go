package scenario

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// copying makes a link that looks and takes nothing.
func copying(o *goamqp.ReceiverOptions) {
	o.SourceDistributionMode = goamqp.SourceDistributionModeCopy
}

// S-247, S-248, S-294: a browser outlives the leader of what it browses: it shows every message once, in
// order, before and after, and nothing has changed by it.
func TestABrowserSurvivesALeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c := b.bystander()
		var all []string
		for i := range 30 {
			all = append(all, fmt.Sprint("message ", i))
		}
		c.send("q", all...)
		held := c.receiver("q").one()
		r := c.receiver("q", copying)
		seen := texts(r.take(12))
		start := b.crashLeader()
		seen = append(seen, texts(r.take(18))...)
		wantAll(b, "seen", seen, all...)
		r.none(5 * time.Second)
		start()
		c.send("q", "late")
		want(b, "behind the last", r.one().text(), "late")
		held.complete()
		n := b.counts("q")
		want(b, "active", n.Active, 30)
		want(b, "locked", n.Locked, 0)
		for i, m := range c.receiver("q").take(30) {
			want(b, fmt.Sprint("count of ", i), m.count(), 1)
		}
	})
}
