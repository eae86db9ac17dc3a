package busbartest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// startLimit bounds the wait for a broker that serves, and stopLimit that for its end.
const (
	startLimit = 60 * time.Second
	stopLimit  = 10 * time.Second
)

// Config is what a broker begins with. Its zero value is good.
type Config struct {
	// Program is the path of the program.
	Program string
	// Entities is a string, the path of a file of entities in the form of the official emulator. Any other value is written
	// as JSON and must have that form.
	Entities any
}

// Broker is a running broker.
type Broker struct {
	// ConnectionString is for clients of Azure Service Bus.
	ConnectionString string
	// Operations is the URL of the operations port, which has the management API, health, metrics and the console.
	Operations string

	process *process
	dir     string
}

// Start starts a broker that ends with the test. If the test fails, it prints the log of the broker.
func Start(tb testing.TB) *Broker {
	tb.Helper()
	return Config{}.Start(tb)
}

// Start is [Start] with a configuration.
func (c Config) Start(tb testing.TB) *Broker {
	tb.Helper()
	b, err := c.Open(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("log of the broker:\n%s", b.Log())
		}
	})
	return b
}

// Open starts a broker that the caller closes, as a TestMain does. The context bounds the start alone.
func (c Config) Open(ctx context.Context) (*Broker, error) {
	dir, err := os.MkdirTemp("", "busbartest-")
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir}
	if err := b.open(ctx, c); err != nil {
		text := ""
		if b.process != nil {
			text = ": " + b.Log()
		}
		_ = b.Close()
		return nil, fmt.Errorf("busbartest: %w%s", err, text)
	}
	return b, nil
}

func (b *Broker) open(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	entities, err := c.entities(b.dir)
	if err != nil {
		return err
	}
	if b.process, err = begin(c.Program, b.dir, entities); err != nil {
		return err
	}
	amqp, ops, err := b.process.addresses(ctx)
	if err != nil {
		return err
	}
	b.ConnectionString = "Endpoint=sb://" + amqp + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true"
	b.Operations = "http://" + ops
	return b.process.await(ctx, "the broker is not healthy yet", func() bool {
		r, err := http.Get(b.Operations + "/health")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// entities returns the path of the file of entities, "" if there is none.
func (c Config) entities(dir string) (string, error) {
	switch is := c.Entities.(type) {
	case nil:
		return "", nil
	case string:
		return filepath.Abs(is)
	}
	text, err := json.Marshal(c.Entities)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "Config.json")
	return file, os.WriteFile(file, text, 0o644) //nolint:gosec // a container has another user
}

// Reset empties every entity, as if each had just been made. Close receivers before.
func (b *Broker) Reset(tb testing.TB) {
	tb.Helper()
	if _, err := b.ask(tb.Context(), http.MethodPost, "/api/reset", ""); err != nil {
		tb.Fatal(err)
	}
}

// Log returns what the broker has printed so far.
func (b *Broker) Log() string { return b.process.log.String() }

// Close ends the broker and removes its data. It may be called again.
func (b *Broker) Close() error {
	var err error
	if b.process != nil {
		err = b.process.stop()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}
