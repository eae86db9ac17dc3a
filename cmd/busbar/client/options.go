package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// optionFlags are the options that the original has no property for.
type optionFlags struct {
	ops                        opsFlags
	processed, bodies, accept  bool
	noDeadLetter               bool
	count                      uint32
	age, retryMin, retryMax    time.Duration
	bytes                      uint64
	retryMultiply, retryJitter uint32
}

func queueOptionsCommand(f *dial.Flags) *cobra.Command {
	var o optionFlags
	c := &cobra.Command{
		Use: "options NAME", Short: "Show or set the options that other brokers do not have",
		Long: "Without flags the options are shown. Flags that are given are set, the other options stay.",
		Example: "  busbar queue options orders\n" +
			"  busbar queue options orders --retry-min 1s --retry-max 1m --retry-multiplier 200 --retry-jitter 20\n" +
			"  busbar queue options orders --processed-history --history-count 1000",
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, f, args) },
	}
	addOpsFlag(c, &o.ops)
	flags := c.Flags()
	flags.BoolVar(&o.noDeadLetter, "no-dead-letter", false, "no dead-letter queue: what would be dead-lettered is dropped and counted")
	flags.BoolVar(&o.processed, "processed-history", false, "keep a history of completed messages")
	flags.BoolVar(&o.bodies, "history-bodies", false, "keep their bodies, too")
	flags.BoolVar(&o.accept, "accepted-history", false, "keep a history of accepted messages")
	flags.Uint32Var(&o.count, "history-count", 0, "newest records that always stay, 0 for 100")
	flags.DurationVar(&o.age, "history-age", 0, "how long every record stays, 0 for a day")
	flags.Uint64Var(&o.bytes, "history-bytes", 0, "limit of each history in each partition, 0 for 16 MiB")
	flags.DurationVar(&o.retryMin, "retry-min", 0, "rest after the first failed delivery, 0 for none")
	flags.DurationVar(&o.retryMax, "retry-max", 0, "longest rest")
	flags.Uint32Var(&o.retryMultiply, "retry-multiplier", 0, "percent: 200 doubles the rest each time")
	flags.Uint32Var(&o.retryJitter, "retry-jitter", 0, "percent of the rest that chance may take off it")
	return c
}

func (o *optionFlags) run(c *cobra.Command, f *dial.Flags, args []string) error {
	i, err := inspect(f, &o.ops, args, false)
	if err != nil {
		return err
	}
	var now struct{ Options map[string]any }
	if err := i.call(c.Context(), http.MethodGet, "description", nil, nil, &now); err != nil {
		return err
	}
	change := o.change(c, now.Options)
	if len(change) > 0 {
		body, err := json.Marshal(change)
		if err != nil {
			return err
		}
		now.Options = nil
		if err := i.call(c.Context(), http.MethodPatch, "options", nil, bytes.NewReader(body), &now.Options); err != nil {
			return err
		}
	}
	return printOptions(c.OutOrStdout(), f, now.Options)
}

// change holds the options whose flags are given; those of the backoff go together.
func (o *optionFlags) change(c *cobra.Command, now map[string]any) map[string]any {
	change := map[string]any{}
	given := func(into map[string]any, flag, name string, value any) {
		if c.Flags().Changed(flag) {
			into[name] = value
		}
	}
	given(change, "no-dead-letter", "noDeadLetter", o.noDeadLetter)
	given(change, "processed-history", "processedHistory", o.processed)
	given(change, "history-bodies", "processedHistoryBody", o.bodies)
	given(change, "accepted-history", "acceptedHistory", o.accept)
	given(change, "history-count", "historyCount", o.count)
	given(change, "history-age", "historyAgeMillis", o.age.Milliseconds())
	given(change, "history-bytes", "historyMaxBytes", o.bytes)
	backoff := map[string]any{}
	given(backoff, "retry-min", "minMillis", o.retryMin.Milliseconds())
	given(backoff, "retry-max", "maxMillis", o.retryMax.Milliseconds())
	given(backoff, "retry-multiplier", "multiplierPercent", o.retryMultiply)
	given(backoff, "retry-jitter", "jitterPercent", o.retryJitter)
	if len(backoff) > 0 {
		if before, ok := now["retryBackoff"].(map[string]any); ok {
			for name, value := range before {
				if _, set := backoff[name]; !set {
					backoff[name] = value
				}
			}
		}
		change["retryBackoff"] = backoff
	}
	return change
}

// printOptions prints options by the names and in the forms of the flags that set them.
func printOptions(w io.Writer, f *dial.Flags, options map[string]any) error {
	if f.Output == "json" {
		return dial.PrintJSON(w, options)
	}
	rows := [][]string{{"OPTION", "VALUE"}}
	add := func(from map[string]any, name, flag string) {
		v, ok := from[name]
		if !ok {
			return
		}
		if number, is := v.(float64); is && strings.HasSuffix(name, "Millis") {
			v = time.Duration(number) * time.Millisecond
		} else if is {
			v = uint64(number)
		}
		rows = append(rows, []string{flag, fmt.Sprint(v)})
	}
	add(options, "noDeadLetter", "no-dead-letter")
	add(options, "processedHistory", "processed-history")
	add(options, "processedHistoryBody", "history-bodies")
	add(options, "acceptedHistory", "accepted-history")
	add(options, "historyCount", "history-count")
	add(options, "historyAgeMillis", "history-age")
	add(options, "historyMaxBytes", "history-bytes")
	if backoff, ok := options["retryBackoff"].(map[string]any); ok {
		add(backoff, "minMillis", "retry-min")
		add(backoff, "maxMillis", "retry-max")
		add(backoff, "multiplierPercent", "retry-multiplier")
		add(backoff, "jitterPercent", "retry-jitter")
	}
	return dial.PrintTable(w, rows)
}
