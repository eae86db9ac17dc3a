package simulation

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/cluster/simnet"
	"github.com/busbar-mq/busbar/test/check"
)

// A client that is cut off reads the last answer of its node after the cut. The node was killed meanwhile, and its next life
// may have given to another client what the answer grants. So the connection counts as lost since the kill.
func TestAConnectionIsLostWithItsNodeBehindACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New()
		here, node := net.Host("10.0.0.1"), net.Host("10.0.0.2")
		l, err := node.Listen(t.Context(), ":5672")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := here.Dial(t.Context(), "10.0.0.2:5672")
		if err != nil {
			t.Fatal(err)
		}
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		rec := check.NewRecorder(0, 0)
		s := &socket{Conn: raw, rec: rec, number: 7}
		go s.watch()
		lost := func() (at []int64) {
			synctest.Wait()
			for _, o := range rec.Copy().Ops {
				if o.Kind == check.Lost && o.Conn == 7 {
					at = append(at, o.Invoke)
				}
			}
			return at
		}
		net.Cut("10.0.0.1", "10.0.0.2")
		if _, err := served.Write([]byte("granted")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if at := lost(); len(at) != 0 {
			t.Fatal("a cut alone ends nothing, and the connection was lost at", at)
		}
		node.Kill()
		killed := time.Now().UnixNano()
		if at := lost(); len(at) != 1 || at[0] != killed {
			t.Errorf("lost at %v, want once at %d", at, killed)
		}
		time.Sleep(time.Second)
		net.Reconnect("10.0.0.1", "10.0.0.2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
		defer stop()
		if b, err := io.ReadAll(s); string(b) != "granted" || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("after the cut %q, %v", b, err)
		}
		if at := lost(); len(at) != 1 || at[0] != killed {
			t.Errorf("after the cut lost at %v, want once at %d", at, killed)
		}
		_ = s.Close()
	})
}
