package raftnet

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestRaftSaysLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLogger(hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &out}))
		for range 100 {
			l.Info("entering follower state")
			l.Error("failed to heartbeat to", "peer", "n2")
			l.With("id", 1).Error("failed to heartbeat to", "peer", "n3")
			l.Named("x").Warn("election timeout reached")
			time.Sleep(100 * time.Millisecond)
		}
		l.Error("failed to heartbeat to", "peer", "n2")
		if n := strings.Count(out.String(), "heartbeat"); n != 2 {
			t.Errorf("heartbeat is told %d times in 10 s", n)
		}
		if strings.Contains(out.String(), "follower") || !strings.Contains(out.String(), "election") {
			t.Errorf("got %s", out.String())
		}
	})
}
