package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// openCatalog creates every queue that is asked for, as the broker that the Go client's authors test
// against does.
type openCatalog struct{ *singleBroker }

func (c openCatalog) Entity(ctx context.Context, name string) (*fsm.Descriptor, error) {
	if d, err := c.singleBroker.Entity(ctx, name); err == nil {
		return d, nil
	}
	return c.queue(name), nil
}

// withoutSASL lets clients in that do not authenticate: it does so in their place.
func withoutSASL(t *testing.T, server string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go relay(t, client, server)
		}
	}()
	return l.Addr().String()
}

func relay(t *testing.T, client net.Conn, server string) {
	defer client.Close()
	far, err := net.Dial("tcp", server)
	if err != nil {
		t.Error(err)
		return
	}
	defer far.Close()
	out := amqp.AppendProtocolHeader(nil, amqp.ProtocolSASL)
	out = amqp.AppendFrame(out, 0, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + testPolicy + "\x00" + testKey)})
	if _, err := far.Write(out); err != nil {
		t.Error(err)
		return
	}
	// The server answers with its header, its mechanisms and the outcome: two frames.
	head := make([]byte, 8)
	for part := range 3 {
		if _, err := io.ReadFull(far, head); err != nil {
			t.Error(err)
			return
		}
		if part == 0 {
			continue
		}
		h, err := amqp.ParseFrameHeader(head, 1<<16)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.CopyN(io.Discard, far, int64(h.Size)-8); err != nil {
			t.Error(err)
			return
		}
	}
	first := make([]byte, 8)
	if _, err := io.ReadFull(client, first); err != nil {
		return // a client that went before it said anything
	}
	if first[4] == byte(amqp.ProtocolSASL) { // it does authenticate: any way is right
		if first, err = welcome(client); err != nil {
			t.Error(err)
			return
		}
	}
	if _, err := far.Write(first); err != nil {
		t.Error(err)
		return
	}
	go func() {
		_, _ = io.Copy(far, client)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, far)
}

// welcome answers a client's SASL exchange and returns the protocol header behind it.
func welcome(client net.Conn) ([]byte, error) {
	out := amqp.AppendProtocolHeader(nil, amqp.ProtocolSASL)
	out = amqp.AppendFrame(out, 0, &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS", "PLAIN"}})
	if _, err := client.Write(out); err != nil {
		return nil, err
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(client, head); err != nil {
		return nil, err
	}
	h, err := amqp.ParseFrameHeader(head, 1<<16)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, client, int64(h.Size)-8); err != nil {
		return nil, err
	}
	if _, err := client.Write(amqp.AppendFrame(nil, 0, &amqp.SASLOutcome{Outcome: amqp.SASLOK})); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(client, head)
	return head, err
}

// The Go client's own integration tests, unmodified, against a server whose queues come into being
// when somebody attaches. BUSBAR_GO_AMQP_TESTS names their binary, or is "build": then it is built from
// the module cache, which needs the modules that those tests use.
func TestTheGoClientsOwnTests(t *testing.T) {
	binary := os.Getenv("BUSBAR_GO_AMQP_TESTS")
	if binary == "" {
		t.Skip("BUSBAR_GO_AMQP_TESTS is not set")
	}
	if binary == "build" {
		binary = filepath.Join(t.TempDir(), "goamqp.test")
		build := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-c", "-o", binary, ".")
		build.Dir = goClientDir(t)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	ts := startServer(t, 1)
	ts.catalog = openCatalog{ts.broker}
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run",
		"TestIntegration|TestMultipleSessions|CancelledContext|TestConcurrentSessions|TestReceiverModeFirst|"+
			"TestSenderExactlyOnce|TestReceivingLots|TestMultipleSenders|TestDrainingLink|TestSenderNullValue")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "AMQP_BROKER_ADDR=amqp://"+withoutSASL(t, ts.addr))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	passed := 0
	for _, m := range regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`).FindAllStringSubmatch(string(out), -1) {
		if m[1] == "PASS" {
			passed++
		} else {
			t.Errorf("%s: %s", m[2], strings.ToLower(m[1]))
		}
	}
	if passed != 17 || err != nil {
		t.Errorf("%d of 17 pass, %v\n%s", passed, err, lastPart(string(out)))
	}
}

// lastPart is the end of a long text.
func lastPart(s string) string { return s[max(0, len(s)-4000):] }
