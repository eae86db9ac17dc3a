package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// resetTimeout bounds one reset: each entity takes a few commits.
const resetTimeout = 5 * time.Minute

// NewResetCommand makes busbar reset: a development node is empty again.
func NewResetCommand() *cobra.Command {
	var ops opsFlags
	var yes bool
	c := &cobra.Command{
		Use: "reset", Short: "Empty every queue and topic of a development node", Args: exactly(0),
		Long: "Empty every queue and topic of a node with --dev. The entities stay, and sequence numbers begin at 1 again. Open\n" +
			"links end. A node without --dev refuses it.",
	}
	f := dial.AddFlags(c)
	addOpsFlag(c, &ops)
	c.Flags().BoolVar(&yes, "yes", false, "do it; without this flag nothing is done")
	_ = c.Flags().Set("timeout", resetTimeout.String())
	c.RunE = func(c *cobra.Command, _ []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		if !yes {
			return exit.Usagef("reset deletes every message of the node for good: add --yes")
		}
		ops.Timeout, ops.CAFile, ops.Connection, ops.Context = max(f.Timeout, resetTimeout), f.CAFile, f.Connection, f.Context
		body, err := ops.ask(c.Context(), http.MethodPost, "/api/reset", nil, t.Token("", time.Now()))
		if err != nil {
			return err
		}
		var answer struct{ Entities int }
		if err := json.Unmarshal(body, &answer); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
		return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"status": "reset", "entities": answer.Entities},
			"emptied "+entitiesText(answer.Entities))
	}
	return c
}

func entitiesText(n int) string {
	if n == 1 {
		return "1 entity"
	}
	return fmt.Sprintf("%d entities", n)
}

// NewTokenCommand makes busbar token: a proof for programs that take no key.
func NewTokenCommand() *cobra.Command {
	var life time.Duration
	c := &cobra.Command{
		Use: "token [ENTITY]", Short: "Print a token for HTTP requests, made from the key of the connection string",
		Long: "Print a shared access signature for an entity, or for the whole namespace. The key stays here.",
		Example: "  curl -H \"Authorization: $(busbar token orders)\" -d hello http://localhost:5672/orders/messages\n" +
			"  curl -H \"Authorization: $(busbar token --valid 10m)\" http://localhost:5300/api/cluster",
	}
	f := dial.AddFlags(c)
	c.Flags().DurationVar(&life, "valid", time.Hour, "how long the token is valid")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		path := ""
		switch {
		case len(args) > 1:
			return exit.Usagef("token takes one entity")
		case len(args) == 1:
			path = args[0]
		}
		if life < time.Second {
			return exit.Usagef("--valid is %v, want at least 1s", life)
		}
		if t.Key == "" {
			return exit.Usagef("the connection string has a signature and no key, so no other token can be made from it")
		}
		until := time.Now().Add(life)
		return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"token": t.TokenUntil(path, until), "expires": until.UTC().Format(time.RFC3339)},
			t.TokenUntil(path, until))
	}
	return c
}
