package client

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/manage"
)

// NewQueueCommand makes busbar queue: what a user or an operator does with one queue.
func NewQueueCommand() *cobra.Command {
	c := &cobra.Command{Use: "queue", Short: "Create, list, inspect, change, purge and delete queues",
		Long: "Commands that look into a queue or act on its messages take TOPIC/Subscriptions/NAME as well.",
		Args: cobra.NoArgs, RunE: showHelp}
	f := dial.AddFlags(c)
	ops := &opsFlags{}
	manage.AddCommands(c, f, entities.Queue, func(ctx context.Context, path string) (map[string]uint64, error) {
		i, err := inspect(f, ops, []string{path}, false)
		if err != nil {
			return nil, err
		}
		dropped, err := i.dropped(ctx)
		if err != nil && !ops.named() {
			err = nil // the default address is a guess
		}
		return dropped, err
	})
	for _, below := range c.Commands() {
		if below.Name() == "show" {
			addOpsFlag(below, ops)
		}
	}
	c.AddCommand(queueLocksCommand(f), queueHistoryCommand(f), queueSessionsCommand(f), queuePeekCommand(f),
		queuePurgeCommand(f), queueMoveCommand(f), queueTransactionsCommand(f), queueOptionsCommand(f),
		queueSuspendCommand(f), queueResumeCommand(f))
	return c
}

// dropped asks for the counters of what the queue dropped, by reason (S-169).
func (i *inspector) dropped(ctx context.Context) (map[string]uint64, error) {
	var answer struct{ Dropped map[string]uint64 }
	err := i.call(ctx, http.MethodGet, "description", nil, nil, &answer)
	return answer.Dropped, err
}
