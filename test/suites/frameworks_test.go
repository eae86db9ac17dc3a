package suites

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/languages"
)

// frameworks are folders with a run.sh that installs a framework and lets one real application of it
// work; how many scenarios each tells of.
var frameworks = map[string]int{"celery": 2, "camel": 3, "keda": 5, "spring": 3}

// namespace is how a framework that knows only the original's domain calls the node.
const namespace = "busbar-tests.servicebus.windows.net"

// frameworkLimit bounds one framework's run.
const frameworkLimit = 5 * time.Minute

// TestFrameworks runs applications of frameworks that have the original's transport built in.
func TestFrameworks(t *testing.T) {
	t.Parallel()
	for dir := range frameworks {
		runFramework(t, dir, nil, "--install") // one after the other: some share a cache
	}
	b := newBed(t)
	b.entities(t)
	environment := append(os.Environ(),
		"BUSBAR_TLS="+strings.Replace(b.endpoint, "localhost", "127.0.0.1", 1),
		"BUSBAR_CA="+b.ca,
		"BUSBAR_KEY_NAME="+cluster.KeyName,
		"BUSBAR_KEY="+cluster.Key,
		"BUSBAR_DATA="+b.node.Plain(),
		"BUSBAR_ADMIN=Endpoint=sb://"+b.endpoint+"/;SharedAccessKeyName="+cluster.KeyName+";SharedAccessKey="+cluster.Key,
	)
	for dir, scenarios := range frameworks {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			rep, err := languages.ReadReport(bytes.NewReader(runFramework(t, dir, environment)))
			if err != nil || !rep.Ended || len(rep.Outcomes) != scenarios {
				t.Errorf("ended %v with %d scenarios, want %d: %v", rep.Ended, len(rep.Outcomes), scenarios, err)
			}
			t.Logf("%s %s", rep.Library, rep.Version)
			for id, o := range rep.Outcomes {
				if o.State != "pass" {
					t.Errorf("%s: %s after %s: %s", id, o.State, o.Took, o.Text)
				}
			}
		})
	}
}

// entities creates what the routes and listeners of the frameworks that create nothing want to find.
func (b *bed) entities(t *testing.T) {
	t.Helper()
	a, err := b.node.Admin(false)
	if err != nil {
		t.Fatal(err)
	}
	lock := "PT5M" // nothing waits for the end of a lock, what is rolled back neither
	for _, name := range []string{"camel-in", "camel-out", "spring-orders", "spring-replies", "spring-fragile"} {
		opt := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{LockDuration: &lock}}
		if _, err := a.CreateQueue(t.Context(), name, opt); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"camel-events", "spring-events"} {
		if _, err := a.CreateTopic(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.CreateSubscription(t.Context(), name, "all", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// runFramework runs a framework's script and returns what it printed.
func runFramework(t *testing.T, dir string, environment []string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), frameworkLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "run.sh"), args...)
	cmd.Env = environment
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	// The script has children; all go when the time is up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		s := said.String()
		t.Errorf("%s %s: %v\n%s", dir, strings.Join(args, " "), err, s[max(0, len(s)-3000):])
	}
	return out.Bytes()
}
