package client

import (
	"context"
	"encoding/base64"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewSessionCommand makes busbar session: the state of sessions, as their holders read and write it.
func NewSessionCommand() *cobra.Command {
	c := &cobra.Command{Use: "session", Short: "Read and write the state of sessions", Args: cobra.NoArgs, RunE: showHelp,
		Long: "Read and write the state of sessions. Each command locks the session for a moment, and is refused while somebody\n" +
			"else holds it. busbar queue sessions lists sessions and releases them."}
	f := dial.AddFlags(c)
	state := &cobra.Command{Use: "state", Short: "Read, write and clear the state of a session", Args: cobra.NoArgs, RunE: showHelp}
	state.AddCommand(stateGetCommand(f), stateSetCommand(f), stateClearCommand(f))
	c.AddCommand(state)
	return c
}

// withSession runs a request on the node of a queue while the session is held.
func withSession(ctx context.Context, f *dial.Flags, queue, session, operation string, more map[string]any) (map[string]any, error) {
	t, err := f.Target()
	if err != nil {
		return nil, err
	}
	w, r, done, err := openManagement(ctx, t, f.Timeout, queue)
	if err != nil {
		return nil, err
	}
	defer done()
	release, err := holdSession(ctx, w, queue, session)
	if err != nil {
		return nil, err
	}
	defer release()
	body := map[string]any{"session-id": session}
	for name, v := range more { // order-free: a map
		body[name] = v
	}
	answer, err := ask(ctx, w, r, operation, body)
	if err != nil {
		return nil, dial.Failure(operation, err)
	}
	top, _ := answer.Value.(map[string]any)
	return top, nil
}

func stateGetCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "get QUEUE SESSION", Short: "Print the state of a session", Args: exactly(2),
		Long: "Print the state of a session, byte by byte. With -o json a state that is no text is in base64, and null is no state.",
		RunE: func(c *cobra.Command, args []string) error {
			answer, err := withSession(c.Context(), f, args[0], args[1], "get-session-state", nil)
			if err != nil {
				return err
			}
			state, there := answer["session-state"].([]byte)
			if f.Output != "json" {
				_, err := c.OutOrStdout().Write(state)
				return err
			}
			v := map[string]any{"queue": args[0], "session": args[1], "state": nil}
			switch {
			case there && utf8.Valid(state):
				v["state"] = string(state)
			case there:
				v["state"], v["stateEncoding"] = base64.StdEncoding.EncodeToString(state), "base64"
			}
			return dial.PrintJSON(c.OutOrStdout(), v)
		},
	}
}

func stateSetCommand(f *dial.Flags) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "set QUEUE SESSION [STATE]", Short: "Write the state of a session",
		Example: "  busbar session state set orders s1 step-3\n  busbar session state set orders s1 --file state.bin",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 || (len(args) == 3) == (file != "") {
				return exit.Usagef("%s takes a queue, a session, and the state or --file", c.CommandPath())
			}
			var state []byte
			switch {
			case file == "":
				state = []byte(args[2])
			case file == "-":
				var err error
				if state, err = io.ReadAll(c.InOrStdin()); err != nil {
					return err
				}
			default:
				var err error
				if state, err = os.ReadFile(file); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			if _, err := withSession(c.Context(), f, args[0], args[1], "set-session-state",
				map[string]any{"session-state": state}); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"queue": args[0], "session": args[1], "bytes": len(state)},
				"state of "+args[1]+" is set, "+dial.Plural(len(state), "byte"))
		},
	}
	c.Flags().StringVar(&file, "file", "", "read the state from this file, - for the standard input")
	return c
}

func stateClearCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "clear QUEUE SESSION", Short: "Remove the state of a session", Args: exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := withSession(c.Context(), f, args[0], args[1], "set-session-state",
				map[string]any{"session-state": nil}); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"queue": args[0], "session": args[1], "cleared": true},
				"state of "+args[1]+" is removed")
		},
	}
}
