package client

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// NewHealthCheckCommand makes busbar healthcheck: a probe for images that have neither a shell nor curl.
//
// It asks /livez of the operations port, or /readyz with --ready. The exit code is 0 if the answer is 200, and 1 if it is
// another one or does not come in time. A wrong command line has 2, as everywhere.
func NewHealthCheckCommand() *cobra.Command {
	f := &opsFlags{unverified: true}
	var ready bool
	c := &cobra.Command{
		Use: "healthcheck", Short: "Probe a node: exit code 0 if it is alive, or ready with --ready",
		Long: "Probe a node by its operations port, for containers without a shell.\n\n" +
			"The certificate of a port with ops-tls is not verified: a probe sends nothing secret.",
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			path, word := "/livez", "alive"
			if ready {
				path, word = "/readyz", "ready"
			}
			if _, err := f.call(c.Context(), http.MethodGet, path); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), word)
			return err
		},
	}
	flags := c.Flags()
	flags.BoolVar(&ready, "ready", false, "ask if the node is ready for clients, not only alive")
	flags.StringVar(&f.base, "ops", "", opsUsage)
	flags.DurationVar(&f.Timeout, "timeout", 3*time.Second, "limit of the request")
	return c
}
