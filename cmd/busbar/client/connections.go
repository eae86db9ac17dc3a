package client

import (
	"cmp"
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

// The paths of the operations port that list and close connections.
const (
	ConnectionsPath      = "/api/connections"
	CloseConnectionsPath = ConnectionsPath + "/close"
)

// connectionRow is what a table shows of a connection.
type connectionRow struct {
	ID          string    `json:"id"`
	Node        string    `json:"node"`
	Container   string    `json:"container"`
	Product     string    `json:"product"`
	Version     string    `json:"version"`
	Protocol    string    `json:"protocol"`
	Remote      string    `json:"remote"`
	Policies    []string  `json:"policies"`
	Since       time.Time `json:"since"`
	State       string    `json:"state"`
	MessagesIn  uint64    `json:"messagesIn"`
	MessagesOut uint64    `json:"messagesOut"`
	Unsettled   int       `json:"unsettled"`
	Host        string    `json:"host"`
	Sessions    int       `json:"sessions"`
	BytesIn     uint64    `json:"bytesIn"`
	BytesOut    uint64    `json:"bytesOut"`
	OpenLinks   int       `json:"openLinks"`
	Links       []struct {
		Role      string `json:"role"`
		Entity    string `json:"entity"`
		Mode      string `json:"mode"`
		Session   string `json:"session"`
		Credit    uint32 `json:"credit"`
		Unsettled int    `json:"unsettled"`
		Messages  uint64 `json:"messages"`
	} `json:"links"`
}

// connectionsAnswer is what the operations port answers.
type connectionsAnswer struct {
	Connections []connectionRow `json:"connections"`
	Total       int             `json:"total"`
	Closed      []string        `json:"closed"`
	Problems    []struct {
		Node    string `json:"node"`
		Problem string `json:"problem"`
	} `json:"problems"`
}

// connectionFilter has the flags that choose connections.
type connectionFilter struct{ client, entity string }

func (f *connectionFilter) add(c *cobra.Command) {
	c.Flags().StringVar(&f.client, "client", "", "only with this in the container id, the product or the address")
	c.Flags().StringVar(&f.entity, "entity", "", "only with a link to this queue, topic or subscription")
}

func (f *connectionFilter) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"client": f.client, "entity": f.entity} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

// NewConnectionsCommand makes busbar connections: who is connected to any node of the cluster.
func NewConnectionsCommand() *cobra.Command {
	c := &cobra.Command{Use: "connections", Short: "List and close the AMQP connections of clients", Args: cobra.NoArgs, RunE: showHelp}
	f := addOpsFlags(c)
	c.AddCommand(dial.AddWatch(listConnectionsCommand(f), &f.Flags), closeConnectionsCommand(f))
	return c
}

func listConnectionsCommand(f *opsFlags) *cobra.Command {
	var filter connectionFilter
	var most int
	var links bool
	c := &cobra.Command{
		Use: "list", Short: "List the AMQP connections of all nodes", Args: exactly(0),
		Long: "List the AMQP connections of all nodes, the oldest first. IN and OUT are messages since the connection began, and " +
			"UNSETTLED are those that the client holds or that are not stored yet.\n\nRequests over HTTP are no connections.",
		Example: "  busbar connections list --entity orders --links\n  busbar connections list --client azsdk-net -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			query := filter.values()
			query.Set("max", strconv.Itoa(most))
			body, err := f.callProven(c.Context(), http.MethodGet, ConnectionsPath+"?"+query.Encode())
			if err != nil {
				return err
			}
			var all connectionsAnswer
			if err := json.Unmarshal(body, &all); err != nil {
				return fmt.Errorf("list connections: %w", err)
			}
			if f.Output == "json" {
				if _, err = fmt.Fprintln(c.OutOrStdout(), strings.TrimSpace(string(body))); err != nil {
					return err
				}
				return all.failed()
			}
			rows := connectionRows(&all, f.Wide)
			if links {
				rows = linkRows(&all)
			}
			if err := dial.PrintTable(c.OutOrStdout(), rows); err != nil {
				return err
			}
			if n := len(all.Connections); n < all.Total {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%d of %d connections; see --max\n", n, all.Total); err != nil {
					return err
				}
			}
			return all.failed()
		},
	}
	filter.add(c)
	c.Flags().IntVar(&most, "max", 1000, "connections at most")
	c.Flags().BoolVar(&links, "links", false, "a line for each link: entity, role, credit, messages")
	return c
}

func connectionRows(all *connectionsAnswer, wide bool) [][]string {
	rows := [][]string{{"ID", "NODE", "CLIENT", "VERSION", "PROTOCOL", "REMOTE", "POLICY", "SINCE", "STATE", "LINKS", "UNSETTLED", "IN", "OUT"}}
	if wide {
		rows[0] = append(rows[0], "CONTAINER", "HOST", "SESSIONS", "BYTES IN", "BYTES OUT")
	}
	for _, c := range all.Connections {
		rows = append(rows, []string{c.ID, c.Node, cmp.Or(c.Product, c.Container, "-"), cmp.Or(c.Version, "-"), c.Protocol, c.Remote,
			cmp.Or(strings.Join(c.Policies, ","), "-"), c.Since.Local().Format(time.DateTime), c.State, strconv.Itoa(c.OpenLinks),
			strconv.Itoa(c.Unsettled), numberText(c.MessagesIn), numberText(c.MessagesOut)})
		if last := len(rows) - 1; wide {
			rows[last] = append(rows[last], textCell(c.Container), textCell(c.Host), strconv.Itoa(c.Sessions), numberText(c.BytesIn), numberText(c.BytesOut))
		}
	}
	return rows
}

func linkRows(all *connectionsAnswer) [][]string {
	rows := [][]string{{"ID", "NODE", "CLIENT", "ROLE", "ENTITY", "MODE", "SESSION", "CREDIT", "UNSETTLED", "MESSAGES"}}
	for _, c := range all.Connections {
		for _, l := range c.Links {
			rows = append(rows, []string{c.ID, c.Node, cmp.Or(c.Product, c.Container, "-"), l.Role, l.Entity, cmp.Or(l.Mode, "-"),
				cmp.Or(l.Session, "-"), strconv.FormatUint(uint64(l.Credit), 10), strconv.Itoa(l.Unsettled), numberText(l.Messages)})
		}
	}
	return rows
}

// failed says which nodes did not answer.
func (all *connectionsAnswer) failed() error {
	var texts []string
	for _, p := range all.Problems {
		texts = append(texts, fmt.Sprintf("node %s: %s", p.Node, p.Problem))
	}
	if len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("not all nodes answered: %s", strings.Join(texts, "; "))
}

func closeConnectionsCommand(f *opsFlags) *cobra.Command {
	var filter connectionFilter
	c := &cobra.Command{
		Use: "close [ID]", Short: "Close AMQP connections of clients",
		Long: "Close the connection of an ID, or all with --client or --entity. The client may settle what it holds, and reads that " +
			"an operator closed the connection; locks that it keeps run out by themselves.\n\nMost clients connect again at once. To " +
			"keep a client away, suspend the queue, or replace its key.",
		Example: "  busbar connections close 3fa91c02-17\n  busbar connections close --entity orders",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			query := filter.values()
			if len(args) == 1 {
				query.Set("id", args[0])
			}
			if len(query) == 0 || len(args) == 1 && args[0] == "" {
				return exit.Usagef("name the ID of a connection, or give --client or --entity; busbar connections list shows ids")
			}
			body, err := f.callProven(c.Context(), http.MethodPost, CloseConnectionsPath+"?"+query.Encode())
			if err != nil {
				return err
			}
			var all connectionsAnswer
			if err := json.Unmarshal(body, &all); err != nil {
				return fmt.Errorf("close connections: %w", err)
			}
			if err := dial.PrintDone(c.OutOrStdout(), &f.Flags, map[string]any{"closed": all.Closed},
				"closed "+counted(len(all.Closed), "connection")); err != nil {
				return err
			}
			return all.failed()
		},
	}
	filter.add(c)
	return c
}
