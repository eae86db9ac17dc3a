package suites

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

var keepLogs = flag.String("logs", "", "directory for what failed tests printed")

// bed is a node as the tests of the SDK expect the service to be.
type bed struct {
	node     *cluster.Node
	endpoint string // host and port of TLS
	slow     string // the same, over a line of slowBytes a second
	ca       string
	identity string // URL
}

// Keys that may do less than everything; some tests want to be refused.
const (
	sendOnly   = "SendOnly:SEND_KEY"
	listenOnly = "ListenOnly:LISTEN_KEY"
	noManage   = "NoManage:NOMANAGE_KEY"
)

// startLimit bounds the start of the node and the building of the tests, which may have to download
// what they need.
const startLimit = 8 * time.Minute

func newBed(t *testing.T) *bed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	dir := t.TempDir()
	ports, err := cluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	line := slowLine(t, ports[0])
	certify(t, dir, ports[0], line)
	issuer := newIssuer(t)
	config := filepath.Join(dir, "busbar.yaml")
	write(t, config, "root-key: "+cluster.Key+"\nissuers:\n  - name: "+issuer.url+"\n    keys: "+issuer.url+"/keys\n"+
		"policies:\n"+policy(sendOnly, "Send")+policy(listenOnly, "Listen")+policy(noManage, "Send, Listen"))
	n, err := cluster.StartSingle(ctx, dir, "--config", config, "--tls-listen", local(ports[0]),
		"--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.Pid() == 0 {
			t.Error("the node died during the tests")
		}
		n.Stop()
		if t.Failed() {
			t.Logf("the node printed at last:\n%s", n.Log(4000))
		}
	})
	b := &bed{node: n, ca: filepath.Join(dir, "ca.pem"), identity: issuer.url,
		endpoint: fmt.Sprintf("localhost:%d", ports[0]), slow: fmt.Sprintf("localhost:%d", line)}
	b.queues(t)
	return b
}

func policy(nameAndKey, rights string) string {
	name, key, _ := strings.Cut(nameAndKey, ":")
	return fmt.Sprintf("  - {name: %s, primary-key: %s, rights: [%s]}\n", name, key, rights)
}

// queues creates the two that the template of the SDK's authors has.
func (b *bed) queues(t *testing.T) {
	t.Helper()
	a, err := b.node.Admin(false)
	if err != nil {
		t.Fatal(err)
	}
	lock := "PT5M"
	for name, sessions := range map[string]bool{"testQueue": false, "testQueueWithSessions": true} {
		p := &admin.QueueProperties{LockDuration: &lock, RequiresSession: &sessions}
		if _, err := a.CreateQueue(t.Context(), name, &admin.CreateQueueOptions{Properties: p}); err != nil {
			t.Fatal(err)
		}
	}
}

// environment is how the tests of the SDK are told of the service.
func (b *bed) environment(endpoint string) []string {
	with := func(nameAndKey string) string {
		name, key, _ := strings.Cut(nameAndKey, ":")
		return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s", endpoint, name, key)
	}
	root := with(cluster.KeyName + ":" + cluster.Key)
	return append(os.Environ(),
		"AZURE_RECORD_MODE=live",
		"SERVICEBUS_ENDPOINT="+endpoint,
		"SERVICEBUS_ENDPOINT_PREMIUM="+endpoint,
		"SERVICEBUS_CONNECTION_STRING="+root,
		"SERVICEBUS_CONNECTION_STRING_PREMIUM="+root,
		"SERVICEBUS_CONNECTION_STRING_NO_MANAGE="+with(noManage),
		"SERVICEBUS_CONNECTION_STRING_SEND_ONLY="+with(sendOnly),
		"SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY="+with(listenOnly),
		"AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential",
		"IDENTITY_ENDPOINT="+b.identity+"/token",
		"IDENTITY_HEADER=any",
		"SSL_CERT_FILE="+b.ca,
		"NO_PROXY=localhost,127.0.0.1",
	)
}

// build builds the tests of a package of a module and returns the binary, and the package's directory,
// where they find their files.
func build(t *testing.T, pkg string) (binary, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	binary = filepath.Join(t.TempDir(), filepath.Base(pkg)+".test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, pkg).CombinedOutput(); err != nil {
		t.Fatalf("build the tests of %s: %v\n%s", pkg, err, out)
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		t.Fatalf("find %s: %v", pkg, err)
	}
	return binary, strings.TrimSpace(string(out))
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
