package partition

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm/catalog"
)

// A node that did not answer and was forgotten keeps the others from nothing: while all groups rest they ask each other seldom.
func TestAForgottenNodeKeepsNobodyAsking(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		b.wantVersion("n2", b.all["n2"].host.cfg.Knows)
		b.kill("n1")
		time.Sleep(time.Minute)
		b.wish("n2", "n1", catalog.Gone)
		b.until("n1 is forgotten", func() string { return b.forgotten("n2", "n1") })
		time.Sleep(time.Minute)
		asked := b.net.Calls(KindStatus)
		time.Sleep(5 * time.Minute)
		if n, most := b.net.Calls(KindStatus)-asked, 2*2*30; n > most || n == 0 {
			t.Errorf("%d statuses in five minutes, want one of each node in ten seconds by each, %d", n, most)
		}
	})
}
