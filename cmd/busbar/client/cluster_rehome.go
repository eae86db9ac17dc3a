package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// rehomeFlags are what a move of shares is asked for with.
type rehomeFlags struct {
	to   uint16
	dry  bool
	wait time.Duration
}

func rehomeCommand(f *opsFlags) *cobra.Command {
	var o rehomeFlags
	c := &cobra.Command{
		Use: "rehome QUEUE", Short: "Move the shares of a queue to other partitions", Args: exactly(1),
		Long: "Move the shares of a queue to the partitions with the fewest shares, or its only share to one that is named.\n\n" +
			"The queue is in use meanwhile. At the end of each move nobody serves the share for a moment. The cluster goes on by " +
			"itself if the command is interrupted.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			return f.rehome(c, args[0], o)
		},
	}
	c.Flags().Uint16Var(&o.to, "to", 0, "the partition to move to, for a queue with one share")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "tell what would move, and move nothing")
	c.Flags().DurationVar(&o.wait, "wait", waitDefault, "how long to wait for the end; 0 does not wait")
	return c
}

func (f *opsFlags) rehome(c *cobra.Command, name string, o rehomeFlags) error {
	query := url.Values{"entity": {name}}
	if o.to != 0 {
		query.Set("to", strconv.Itoa(int(o.to)))
	}
	if o.dry {
		query.Set("dry-run", "true")
	}
	body, err := f.call(c.Context(), http.MethodPost, commandsPath+"rehome?"+query.Encode())
	if err != nil {
		return err
	}
	var begun struct {
		Moves []struct {
			Share int `json:"share"`
			From  int `json:"from"`
			To    int `json:"to"`
		} `json:"moves"`
	}
	if err := json.Unmarshal(body, &begun); err != nil {
		return fmt.Errorf("rehome: %w", err)
	}
	lines := []string{}
	for _, m := range begun.Moves {
		lines = append(lines, fmt.Sprintf("share %d: partition %d to %d", m.Share, m.From, m.To))
	}
	done := len(begun.Moves) == 0
	switch {
	case done:
		lines = append(lines, "nothing to move: the shares are where they make the least difference")
	case !o.dry && o.wait > 0:
		if err := f.awaitRehome(c, name, o.wait); err != nil {
			return err
		}
		done = true
	}
	return dial.PrintDone(c.OutOrStdout(), &f.Flags,
		map[string]any{"entity": name, "moves": begun.Moves, "dryRun": o.dry, "done": done}, strings.Join(lines, "\n"))
}

// awaitRehome waits until no share of a queue moves.
func (f *opsFlags) awaitRehome(c *cobra.Command, name string, wait time.Duration) error {
	limit, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	for said := ""; ; {
		body, err := f.call(c.Context(), http.MethodGet, "/api/cluster")
		if err != nil {
			return err
		}
		var s clusterStatus
		if err := json.Unmarshal(body, &s); err != nil {
			return fmt.Errorf("cluster status: %w", err)
		}
		text := ""
		for _, r := range s.Rehomings {
			switch {
			case !strings.EqualFold(r.Entity, name):
			case r.Step == "failed":
				return exit.With(exit.Failed, fmt.Errorf("share %d of %q stays in partition %d: %s", r.Share, name, r.From, r.Why))
			default:
				text = fmt.Sprintf("share %d moves from partition %d to %d (%s), %d move next", r.Share, r.From, r.To, r.Step, r.Left)
			}
		}
		if text == "" {
			return nil
		}
		if text != said {
			said = text
			_, _ = fmt.Fprintln(c.ErrOrStderr(), text)
		}
		select {
		case <-limit.Done():
			return exit.With(exit.Failed, fmt.Errorf("rehome is not done after %s, and goes on: %s", wait, text))
		case <-time.After(lookEvery):
		}
	}
}
