package replica

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// The leader looks at all digests that are kept each second, the newest first. Each entry behind which replicas differ is told
// once, however many there are.
func TestADisputeIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	r := &Replica{log: hclog.New(&hclog.LoggerOptions{Output: &out})}
	look := func(kept ...uint64) {
		for _, index := range kept {
			r.Dispute(index, map[fsm.NodeID]string{"n1": "a", "n2": "b"})
		}
	}
	look(100)
	for range 3 {
		look(200, 100)
	}
	if n := strings.Count(out.String(), "no majority agrees"); n != 2 {
		t.Errorf("two entries are told in %d lines", n)
	}
}
