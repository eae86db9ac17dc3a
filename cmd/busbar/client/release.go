package client

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func locksReleaseCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	var number uint64
	var holder string
	var dead bool
	c := &cobra.Command{
		Use: "release NAME", Short: "Take locks from their holders, as if they had run out",
		Long: "The delivery counts, and the message is delivered again or dead-lettered. The holder's next settlement or\n" +
			"renewal is refused with MessageLockLost. In a queue with sessions release the session instead.",
		Example: "  busbar queue locks release orders --number 4711\n" +
			"  busbar queue locks release orders --all-of 19f3a0c2/17        BY of queue locks",
		RunE: func(c *cobra.Command, args []string) error {
			values := url.Values{}
			switch byNumber := c.Flags().Changed("number"); {
			case byNumber == c.Flags().Changed("all-of"):
				return exit.Usagef("give --number or --all-of, as queue locks shows them")
			case byNumber:
				values.Set("number", numberText(number))
			default:
				values.Set("holder", holder)
			}
			return release(c, f, &ops, args, dead, "release-locks", values)
		},
	}
	addOpsFlag(c, &ops)
	c.Flags().Uint64Var(&number, "number", 0, "sequence number of the locked message")
	c.Flags().StringVar(&holder, "all-of", "", "all locks of this holder, from the column BY")
	c.Flags().BoolVar(&dead, "dlq", false, "locks of the dead-letter queue")
	return c
}

func sessionsReleaseCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	c := &cobra.Command{
		Use: "release NAME SESSION", Short: "Take a session from its holder, as if its lock had run out",
		Long: "The deliveries of the session that are not settled count, and its state stays. The holder's next operation\n" +
			"is refused with SessionLockLost, and its link ends so.",
		Example: "  busbar queue sessions release orders s1",
		RunE: func(c *cobra.Command, args []string) error {
			if err := exactly(2)(c, args); err != nil {
				return err
			}
			return release(c, f, &ops, args[:1], false, "release-session", url.Values{"session": {args[1]}})
		},
	}
	addOpsFlag(c, &ops)
	return c
}

// release asks for a release and says how many locks ended.
func release(c *cobra.Command, f *dial.Flags, ops *opsFlags, args []string, dead bool, act string, values url.Values) error {
	i, err := inspect(f, ops, args, dead)
	if err != nil {
		return err
	}
	var answer struct{ Released uint64 }
	if err := i.call(c.Context(), http.MethodPost, act, values, nil, &answer); err != nil {
		return err
	}
	return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"entity": i.path, "released": answer.Released},
		fmt.Sprintf("released %d of %s", answer.Released, i.path))
}
