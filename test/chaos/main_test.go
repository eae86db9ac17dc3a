package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/busbar-mq/busbar/test/namespaces"
)

// TestMain moves the tests into namespaces of their own where that is possible, and is the supervisor
// where that is asked for.
func TestMain(m *testing.M) {
	if os.Getenv(superviseVariable) != "" {
		superviseMain(os.Stdin, os.Stdout, os.Stderr)
		return
	}
	if noNamespaces() == nil && !namespaces.Inside() {
		os.Exit(moveInside())
	}
	if namespaces.Inside() {
		if err := furnish(); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func binary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("BUSBAR_BINARY")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin", "busbar")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	return bin
}

// testNetwork is the network of a test: nodes speak directly, in namespaces of their own where that is possible.
func testNetwork() string {
	if namespaces.Inside() {
		return overBridge
	}
	return overLoopback
}

func supervised(t *testing.T) *supervisor {
	t.Helper()
	s, err := startSupervisor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// judged makes a run, writes down what it found, and fails the test if that is bad.
func judged(t *testing.T, cfg runConfig) *outcome {
	t.Helper()
	o, err := run(context.Background(), cfg, supervised(t))
	if err != nil {
		t.Fatal(err)
	}
	o.write(testLog{t})
	if o.bad() {
		t.Error("something is broken")
	}
	return o
}

// busy fails the test if a run was too idle to prove anything.
func busy(t *testing.T, o *outcome) {
	t.Helper()
	if o.operations < 1000 {
		t.Errorf("only %d operations", o.operations)
	}
}
