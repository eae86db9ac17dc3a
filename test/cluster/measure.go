package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Metric reads one value without labels from /metrics.
func (n *Node) Metric(ctx context.Context, name string) (float64, error) {
	b, err := n.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("metric %s not found", name)
}

// RSS returns the resident memory of the process in bytes.
func (n *Node) RSS() (int64, error) { return n.memory("VmRSS:") }

// Peak returns the largest resident memory of the process in bytes since it began or ResetPeak was called.
func (n *Node) Peak() (int64, error) { return n.memory("VmHWM:") }

// ResetPeak has the kernel count Peak from now on; Linux only.
func (n *Node) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", n.Pid()), []byte("5"), 0o600)
}

// memory reads one line of what the kernel says about the process, in bytes.
func (n *Node) memory(name string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s not found", name)
}
