package suites

import (
	"context"
	"os/exec"
	"regexp"
	"testing"
	"time"
)

// gocloudCases is how many cases the conformance tests of gocloud.dev's driver have; one of them skips
// itself: what is received and deleted cannot be given back.
const (
	gocloudCases = 28
	gocloudSkips = 1
)

var inner = regexp.MustCompile(`(?m)^    --- (PASS|FAIL|SKIP): (\S+) `)

// TestGocloud runs the conformance tests of gocloud.dev's pubsub over its driver for the original.
func TestGocloud(t *testing.T) {
	t.Parallel() // behind the SDK's tests, which measure time
	binary, dir := build(t, "gocloud.dev/pubsub/azuresb")
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*testLimit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-record", "-test.timeout="+(2*testLimit).String(),
		"-test.run=^TestConformance")
	cmd.Dir, cmd.Env = dir, b.environment(b.endpoint)
	out, err := cmd.CombinedOutput()
	states := map[string]int{}
	for _, m := range inner.FindAllSubmatch(out, -1) {
		states[string(m[1])]++
		if string(m[1]) == "FAIL" {
			t.Errorf("%s fails", m[2])
		}
	}
	if err != nil || states["SKIP"] > gocloudSkips || states["PASS"]+states["SKIP"] != gocloudCases {
		t.Errorf("%v, want %d of which %d skip: %v\n%s", states, gocloudCases, gocloudSkips, err, told(string(out)))
	}
}
