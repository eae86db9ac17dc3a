package suites

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	sdk = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	// sdkTests is how many tests of the SDK need nothing but a namespace.
	sdkTests = 87
	// testLimit bounds one of its tests; the longest takes 40 s on an idle machine.
	testLimit = 3 * time.Minute
	// atOnce is how many of them run at a time; most of their time is waiting.
	atOnce = 6
)

// sdkTest is one line of azservicebus.txt.
type sdkTest struct{ pkg, name string }

func readSDKTests(t *testing.T) []sdkTest {
	t.Helper()
	b, err := os.ReadFile("azservicebus.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []sdkTest
	seen := map[sdkTest]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		pkg, name, ok := strings.Cut(lines.Text(), " ")
		if s := (sdkTest{pkg, name}); !ok || seen[s] {
			t.Fatalf("azservicebus.txt: %q is no test, or is there twice", lines.Text())
		} else {
			seen[s] = true
			all = append(all, s)
		}
	}
	if len(all) != sdkTests {
		t.Fatalf("azservicebus.txt has %d tests, want %d", len(all), sdkTests)
	}
	return all
}

// TestTheGoSDK runs the live tests of the Go SDK's authors.
func TestTheGoSDK(t *testing.T) {
	tests := readSDKTests(t)
	type built struct{ binary, dir string }
	binaries := map[string]built{}
	for pkg, path := range map[string]string{".": sdk, "admin": sdk + "/admin", "internal": sdk + "/internal"} {
		binary, dir := build(t, path)
		binaries[pkg] = built{binary, dir}
	}
	b := newBed(t)
	slots := make(chan struct{}, atOnce)
	var names gate
	for _, s := range tests {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			if s.drawsNames() {
				names.pass()
			}
			endpoint := b.endpoint
			if s.wantsNetwork() {
				endpoint = b.slow
			}
			run(t, binaries[s.pkg].binary, binaries[s.pkg].dir, s.name, b.environment(endpoint))
		})
	}
}

// wantsNetwork: it receives 1,000 messages with 20 ms of patience and wants fewer than with 20 s.
func (s sdkTest) wantsNetwork() bool { return s.name == "TestReceiveWithDifferentWaitTime" }

// drawsNames reports whether the test draws the name of its queue from the second that it starts in:
// two that start in the same second draw the same.
func (s sdkTest) drawsNames() bool {
	return s.pkg == "internal" || s.pkg == "." && strings.HasPrefix(s.name, "TestRenewLocks")
}

// gate lets one test through in two seconds: a name may be drawn up to a second after the start.
type gate struct {
	mu   sync.Mutex
	next time.Time
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	time.Sleep(time.Until(g.next)) // the SDK reads the clock of the machine, so there is nothing else to wait for
	g.next = time.Now().Add(2 * time.Second)
}

var verdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) `)

// run runs one test in a process of its own.
func run(t *testing.T, binary, dir, name string, env []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.run=^"+name+"$", "-test.timeout="+testLimit.String())
	cmd.Dir, cmd.Env = dir, env
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	state := "no verdict"
	if m := verdict.FindSubmatch(out); m != nil && string(m[2]) == name {
		state = string(m[1])
	}
	if state == "PASS" && err == nil {
		return
	}
	if *keepLogs != "" {
		write(t, filepath.Join(*keepLogs, name+".log"), string(out))
	}
	t.Errorf("%s, %v:\n%s", state, err, told(string(out)))
}

// told is what a failed test says of its failure.
func told(out string) string {
	if i := strings.Index(out, "Error Trace:"); i >= 0 {
		return out[i:min(len(out), i+1500)]
	}
	return out[max(0, len(out)-1500):]
}
