package busbartest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// role is the variable that makes the binary of the tests a test run that the tests look at.
const role = "KIT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "holder" { // of a broker, until somebody kills it
		b, err := Config{}.Open(context.Background())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(b.Operations)
		select {}
	}
	os.Exit(m.Run())
}

func clientOf(t *testing.T, b *Broker) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString(b.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func send(t *testing.T, c *azservicebus.Client, to, body string, properties map[string]any) {
	t.Helper()
	s, err := c.NewSender(to, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(body), ApplicationProperties: properties}, nil); err != nil {
		t.Fatal(err)
	}
}

// bodies returns the bodies of the messages that are there, at most ten, and waits if wait is true.
func bodies(t *testing.T, r *azservicebus.Receiver, wait bool) (all []string) {
	t.Helper()
	if wait {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		messages, err := r.ReceiveMessages(ctx, 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			all = append(all, string(m.Body))
		}
		return all
	}
	messages, err := r.PeekMessages(t.Context(), 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		all = append(all, string(m.Body))
	}
	return all
}

var entities = map[string]any{
	"Queues": []any{map[string]any{"Name": "invoices", "Properties": map[string]any{"MaxDeliveryCount": 1}}},
	"Topics": []any{map[string]any{"Name": "events", "Subscriptions": []any{map[string]any{"Name": "urgent", "Rules": []any{
		map[string]any{"Name": "r", "Properties": map[string]any{"FilterType": "Sql", "SqlFilter": map[string]any{"SqlExpression": "priority > 3"}}}}}}}},
}

// A broker has the entities of a file or of code, takes what a client sends, and is empty after a reset.
func TestEntitiesAndReset(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Config.json")
	text, err := json.Marshal(entities)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, given := range map[string]any{"file": file, "code": entities} {
		t.Run(name, func(t *testing.T) {
			b := Config{Entities: given}.Start(t)
			c := clientOf(t, b)
			send(t, c, "events", "low", map[string]any{"priority": 1})
			send(t, c, "events", "high", map[string]any{"priority": 5})
			r, err := c.NewReceiverForSubscription("events", "urgent", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := bodies(t, r, true); len(got) != 1 || got[0] != "high" {
				t.Errorf("the subscription has %q", got)
			}
			_ = r.Close(t.Context())
			send(t, c, "invoices", "one", nil)
			b.Reset(t)
			q, err := c.NewReceiverForQueue("invoices", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := bodies(t, q, false); len(got) != 0 {
				t.Errorf("the queue has %q after a reset", got)
			}
		})
	}
}

// Names differ, properties count, and subscriptions get what is sent to their topic.
func TestEntitiesOfATest(t *testing.T) {
	b := Start(t)
	one, two := b.Queue(t, "q", nil), b.Queue(t, "q", map[string]any{"RequiresSession": true, "UserMetadata": "a < b & c"})
	if one == two {
		t.Errorf("two queues are called %s", one)
	}
	c := clientOf(t, b)
	send(t, c, one, "mine", nil)
	r, err := c.NewReceiverForQueue(two, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := r.ReceiveMessages(ctx, 1, nil); err == nil || ctx.Err() != nil {
		t.Errorf("a queue of sessions takes a plain receiver: %v", err)
	}
	topic := b.Topic(t, "t", "a", "b")
	send(t, c, topic, "all", nil)
	for _, s := range []string{"a", "b"} {
		r, err := c.NewReceiverForSubscription(topic, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := bodies(t, r, true); len(got) != 1 || got[0] != "all" {
			t.Errorf("subscription %s has %q", s, got)
		}
	}
}

func TestBrokersShareNothing(t *testing.T) {
	a, b := Start(t), Start(t)
	if a.ConnectionString == b.ConnectionString {
		t.Fatal("two brokers have one address")
	}
	send(t, clientOf(t, a), a.Queue(t, "q", nil), "x", nil)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
	if _, err := os.Stat(a.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	send(t, clientOf(t, b), b.Queue(t, "q", nil), "x", nil)
}

func TestAFaultySetUpIsExplained(t *testing.T) {
	_, err := Config{Entities: map[string]any{"Queues": []any{map[string]any{"Name": "a b"}}}}.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "/Queues/0") {
		t.Errorf("a faulty file: %v", err)
	}
	if _, err := (Config{Program: "/no/such/busbar"}).Open(t.Context()); err == nil {
		t.Error("a program that is not there was started")
	}
	t.Setenv("BUSBAR_BINARY", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := (Config{}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), "BUSBAR_BINARY") {
		t.Errorf("without a program: %v", err)
	}
}

// again runs the binary of the tests in another role.
func again(t *testing.T, as string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...) //nolint:gosec // the test itself
	c.Env = append(os.Environ(), role+"="+as)
	return c
}

// A test process that is killed takes its broker along.
func TestABrokerEndsWithAKilledTest(t *testing.T) {
	c := again(t, "holder")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(strings.TrimPrefix(line, "http://"))
	if err := dials(address); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	for until := time.Now().Add(20 * time.Second); dials(address) == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the broker is still there")
		}
	}
}

func dials(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// TestRedOnPurpose fails when another test runs it.
func TestRedOnPurpose(t *testing.T) {
	if os.Getenv(role) != "red" {
		t.Skip("TestTheLogOfABrokerIsPrinted runs it")
	}
	Start(t).Queue(t, "q", map[string]any{"Colour": "red"})
}

func TestTheLogOfABrokerIsPrinted(t *testing.T) {
	out, err := again(t, "red", "-test.run", "TestRedOnPurpose").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "log of the broker:") || !strings.Contains(string(out), "is ready after") || !strings.Contains(string(out), "has no property Colour") {
		t.Errorf("%v: %s", err, out)
	}
}

// Without a program a container is started. A stand-in takes the place of the command docker.
func TestAContainer(t *testing.T) {
	program := os.Getenv("BUSBAR_BINARY")
	standin, err := filepath.Abs("../../docker")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BUSBAR_STANDIN", program)
	t.Setenv("BUSBAR_BINARY", "")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("PATH", standin+string(filepath.ListSeparator)+"/usr/bin"+string(filepath.ListSeparator)+"/bin")
	t.Setenv("BUSBAR_IMAGE", "busbar:test")
	b := Config{Entities: entities}.Start(t)
	send(t, clientOf(t, b), "invoices", "x", nil)
	t.Setenv("BUSBAR_IMAGE", "busbar:absent")
	if _, err := (Config{}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), "busbar:absent") {
		t.Errorf("an image that is not there: %v", err)
	}
}
