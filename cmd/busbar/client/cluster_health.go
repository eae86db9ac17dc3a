package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/doctor"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// HealthPath is where the operations port tells what is wrong with the cluster.
const HealthPath = "/api/health/cluster"

// The states of a cluster. Unhealthy: a finding is an alarm.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// ClusterHealth is what HealthPath answers.
type ClusterHealth struct {
	Status   string           `json:"status"`
	Node     string           `json:"node"` // that answers
	Findings []doctor.Finding `json:"findings"`
	Nodes    []NodeHealth     `json:"nodes"`
}

// NodeHealth is one node, with what it says of itself.
type NodeHealth struct {
	ID    string `json:"id"`
	State string `json:"state"`
	// Problem is why the node did not answer, "" if it did.
	Problem string `json:"problem,omitempty"`
	doctor.Node
}

func clusterHealthCommand(f *opsFlags) *cobra.Command {
	var watch bool
	var wait time.Duration
	c := &cobra.Command{
		Use: "health", Short: "Say whether the cluster is healthy: exit code 0, or 10 with each alarm in a sentence", Args: exactly(0),
		Long: "Say whether the cluster is healthy, and each alarm in a sentence. The node that is asked asks all others, for " +
			"three seconds at most.\n\nThe exit code is 0 if there is no alarm, and 10 otherwise. Warnings are counted; busbar cluster " +
			"doctor shows them.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			if watch && wait > 0 {
				return exit.Usagef("--watch and --wait exclude each other")
			}
			return f.lookAtHealth(c, watch, wait)
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "go on, and print the health when it has changed")
	c.Flags().DurationVar(&wait, "wait", 0, "wait for so long until the cluster is healthy")
	return c
}

// lookAtHealth prints the health once, at each change, or when it is good or the wait is over.
func (f *opsFlags) lookAtHealth(c *cobra.Command, watch bool, wait time.Duration) error {
	limit, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	last := ""
	for {
		h, err := f.health(c.Context())
		if watch && c.Context().Err() != nil {
			return nil
		}
		if err != nil && !watch && (wait <= 0 || limit.Err() != nil) {
			return err
		}
		text := ""
		switch {
		case err != nil:
			text = "unknown: " + err.Error() + "\n"
		case f.Output == "json":
			text, err = jsonLine(h)
		default:
			text = h.text()
		}
		good := h != nil && h.Status == Healthy
		if watch && text != last || !watch && (good || wait <= 0 || limit.Err() != nil) {
			if _, err := io.WriteString(c.OutOrStdout(), text); err != nil {
				return err
			}
		}
		last = text
		switch {
		case watch:
			limit = c.Context()
		case good:
			return err
		case wait <= 0 || limit.Err() != nil:
			return exit.With(exit.Unhealthy, fmt.Errorf("the cluster is not healthy"))
		}
		select {
		case <-limit.Done():
		case <-time.After(lookEvery):
		}
	}
}

func clusterDoctorCommand(f *opsFlags) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say each fault of the cluster in a sentence, with the command that cures it", Args: exactly(0),
		Long: "Say each fault of the cluster in a sentence, with the command that cures it: alarms first, then warnings.\n\n" +
			"The exit code is 0 if nothing was found, and 10 otherwise.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			h, err := f.health(c.Context())
			if err != nil {
				return err
			}
			text := h.prescription()
			if f.Output == "json" {
				if text, err = jsonLine(h); err != nil {
					return err
				}
			}
			if _, err := io.WriteString(c.OutOrStdout(), text); err != nil || len(h.Findings) == 0 {
				return err
			}
			return exit.With(exit.Unhealthy, fmt.Errorf("the doctor found %s", counted(len(h.Findings), "fault")))
		},
	}
}

// health asks the operations port.
func (f *opsFlags) health(ctx context.Context) (*ClusterHealth, error) {
	body, err := f.call(ctx, http.MethodGet, HealthPath)
	if err != nil {
		return nil, err
	}
	h := new(ClusterHealth)
	if err := json.Unmarshal(body, h); err != nil {
		return nil, fmt.Errorf("cluster health: %w", err)
	}
	return h, nil
}

func jsonLine(h *ClusterHealth) (string, error) {
	var b strings.Builder
	err := dial.PrintJSON(&b, h)
	return b.String(), err
}

// text is the health and each alarm.
func (h *ClusterHealth) text() string {
	var b strings.Builder
	alarms, warnings := 0, 0
	for _, x := range h.Findings {
		if x.Severity != doctor.Alarm {
			warnings++
			continue
		}
		alarms++
	}
	b.WriteString(h.Status)
	if alarms > 0 {
		b.WriteString(", " + counted(alarms, "alarm"))
	}
	if warnings > 0 {
		b.WriteString(", " + counted(warnings, "warning") + ": see busbar cluster doctor")
	}
	b.WriteString("\n")
	for _, x := range h.Findings {
		if x.Severity == doctor.Alarm {
			b.WriteString(x.Says + "\n")
		}
	}
	return b.String()
}

// prescription is each fault with its cure.
func (h *ClusterHealth) prescription() string {
	if len(h.Findings) == 0 {
		return "nothing is wrong\n"
	}
	var b strings.Builder
	for _, x := range h.Findings {
		fmt.Fprintf(&b, "%s: %s\n    cure: %s\n", x.Severity, x.Says, x.Cure)
	}
	return b.String()
}
