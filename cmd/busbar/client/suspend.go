package client

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

func queueSuspendCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	var status string
	c := &cobra.Command{
		Use: "suspend NAME", Short: "Forbid sending or receiving, so that only an operator can allow it again",
		Long: "Sets a status of a queue, topic or subscription beside that of its user: what either of them forbids\n" +
			"is forbidden, and until it is resumed its user can neither change nor delete it. Messages stay.",
		Example: "  busbar queue suspend orders\n  busbar queue suspend trade/Subscriptions/eu --status ReceiveDisabled",
		RunE: func(c *cobra.Command, args []string) error {
			return setStatus(c, f, &ops, args, "suspend", url.Values{"status": {status}})
		},
	}
	addOpsFlag(c, &ops)
	c.Flags().StringVar(&status, "status", "Disabled", "Disabled, SendDisabled or ReceiveDisabled")
	return c
}

func queueResumeCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	c := &cobra.Command{
		Use: "resume NAME", Short: "Lift a suspension",
		Long:    "The queue, topic or subscription has the status again that its user has set.",
		Example: "  busbar queue resume orders",
		RunE: func(c *cobra.Command, args []string) error {
			return setStatus(c, f, &ops, args, "resume", nil)
		},
	}
	addOpsFlag(c, &ops)
	return c
}

func setStatus(c *cobra.Command, f *dial.Flags, ops *opsFlags, args []string, act string, values url.Values) error {
	i, err := inspect(f, ops, args, false)
	if err != nil {
		return err
	}
	var now struct {
		Status     string `json:"status"`
		Suspended  bool   `json:"suspended"`
		UserStatus string `json:"userStatus"`
	}
	if err := i.call(c.Context(), http.MethodPost, act, values, nil, &now); err != nil {
		return err
	}
	text := fmt.Sprintf("%s is %s", i.path, now.Status)
	if now.Suspended {
		text += fmt.Sprintf(" and suspended; its user has set %s", now.UserStatus)
	}
	return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"entity": i.path, "status": now.Status,
		"suspended": now.Suspended, "userStatus": now.UserStatus}, text)
}
