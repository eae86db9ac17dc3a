package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// EventsPath is where the operations port tells what changes in the cluster.
const EventsPath = "/api/events"

// Event is something that has changed in the cluster.
type Event struct {
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`
	Change    string    `json:"change"`
	Text      string    `json:"text"`
	Node      string    `json:"node,omitempty"`
	Partition int       `json:"partition"` // of a leader; 0 is the catalog
	Term      uint64    `json:"term,omitempty"`
	Entity    string    `json:"entity,omitempty"`
	Code      string    `json:"code,omitempty"` // of an alarm
}

// The kinds of events. EventStream is of the stream itself: it has begun, or is alive.
const (
	EventLeader = "leader"
	EventNode   = "node"
	EventAlarm  = "alarm"
	EventEntity = "entity"
	EventStream = "stream"
)

// EventKinds are the kinds that may be asked for.
func EventKinds() []string { return []string{EventLeader, EventNode, EventAlarm, EventEntity} }

// NewEventsCommand makes busbar events.
func NewEventsCommand() *cobra.Command {
	var kinds []string
	var most int
	c := &cobra.Command{
		Use: "events", Short: "Print what changes in the cluster: leaders, nodes, alarms, entities", Args: exactly(0),
		Long: "Print what changes in the cluster, as the node that is asked sees it: leaders, nodes, alarms, and entities that " +
			"are made, changed or deleted. Alarms and warnings that are there are printed at the beginning.\n\nWhen the connection " +
			"breaks, the command connects again; what happened meanwhile is not printed.",
		Example: "  busbar events\n  busbar events --kind leader,node -o json",
	}
	f := addOpsFlags(c)
	c.Flags().StringSliceVar(&kinds, "kind", nil, "only events of these kinds: "+strings.Join(EventKinds(), ", "))
	c.Flags().IntVar(&most, "max", 0, "end behind so many events, 0 for never")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(EventKinds(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.CheckOutput(); err != nil {
			return err
		}
		for _, kind := range kinds {
			if !slices.Contains(EventKinds(), kind) {
				return exit.Usagef("--kind is %q, want any of %s", kind, strings.Join(EventKinds(), ", "))
			}
		}
		path := EventsPath
		if len(kinds) > 0 {
			path += "?kind=" + strings.Join(kinds, ",")
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		printed, connected := 0, false
		for {
			err := f.listen(ctx, path, func(e Event) (bool, error) {
				if e.Kind == EventStream {
					if e.Change == "begun" {
						connected = true
						fmt.Fprintln(c.ErrOrStderr(), e.Text)
					}
					return true, nil
				}
				printed++
				return most == 0 || printed < most, printEvent(c, f, e)
			})
			switch {
			case ctx.Err() != nil, err == nil && most > 0 && printed >= most:
				return nil
			case !connected || err != nil && exit.Code(err) != exit.Failed:
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "the connection broke (%v); connecting again\n", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
		}
	}
	return c
}

func printEvent(c *cobra.Command, f *opsFlags, e Event) error {
	if f.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), e)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s  %-6s  %s\n", e.At.Local().Format(time.DateTime), e.Kind, printable(e.Text))
	return err
}

// listen reads a stream of events until it ends or each has enough.
func (f *opsFlags) listen(ctx context.Context, path string, each func(Event) (more bool, err error)) error {
	token, given := "", f.connects()
	if given {
		t, err := f.Target()
		if err != nil {
			return err
		}
		token = t.Token("", time.Now())
	}
	res, err := f.open(ctx, http.MethodGet, path, nil, token)
	if err != nil {
		return needsManage(given, err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("events: %w", err)
		}
		if more, err := each(e); !more || err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	return fmt.Errorf("events: the node has ended the stream")
}
