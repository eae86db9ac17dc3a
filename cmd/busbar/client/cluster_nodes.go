package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// commandsPath is where the operations port takes commands to the cluster.
const commandsPath = "/api/cluster/"

// A command that waits for a node looks at the cluster each lookEvery, and says how far it is when that has changed.
const (
	lookEvery   = time.Second
	waitDefault = time.Hour
)

// nodeRow is a node as GET /api/cluster tells it.
type nodeRow struct {
	ID       string `json:"id"`
	UUID     string `json:"uuid"`
	State    string `json:"state"`
	Address  string `json:"address"`
	Wish     string `json:"wish"`
	Zone     string `json:"zone"`
	Leads    int    `json:"leads"`
	Replicas int    `json:"replicas"`
	Stays    string `json:"stays"`
}

// nodeVerb is a verb for one node: what it asks for, and when that is reached.
type nodeVerb struct {
	use, short, long string
	// reached reports whether the node is as the verb wants it, and says what it is. node is nil if the cluster does not
	// list it any more.
	reached func(node *nodeRow) (done bool, text string)
}

var nodeVerbs = []nodeVerb{
	{"drain", "Take leaders and replicas away from a node", "The node gives its leaderships away at once, and its " +
		"replicas one by one if other nodes are free. It still serves clients.", drained},
	{"undrain", "Let a node have its share again", "The wishes drain and remove are taken back. Leaders and replicas come " +
		"back one by one.", undrained},
	{"remove", "Drain a node and take it out of the cluster for good", "When the node holds nothing the cluster forgets " +
		"it. Then stop it. To use the machine again, delete the data directory.", removed},
	{"forget", "Take a node that never comes back out of the cluster", "Other nodes take its places at once. A place that " +
		"no node can take is given up until a node joins.", removed},
}

func drained(n *nodeRow) (bool, string) {
	switch {
	case n == nil:
		return true, "the node is not in the cluster"
	case n.Leads == 0 && n.Stays != "":
		return true, fmt.Sprintf("%s leads nothing and keeps %s: %s", n.ID, counted(n.Replicas, "replica"), n.Stays)
	case n.Leads == 0 && n.Replicas == 0:
		return true, n.ID + " leads nothing and holds no replica"
	}
	return false, fmt.Sprintf("%s leads %s and holds %s", n.ID, counted(n.Leads, "group"), counted(n.Replicas, "replica"))
}

func undrained(n *nodeRow) (bool, string) {
	if n == nil {
		return true, "the node is not in the cluster"
	}
	return n.Wish == "", fmt.Sprintf("%s gets its share again", n.ID)
}

func removed(n *nodeRow) (bool, string) {
	switch {
	case n == nil || n.State == "removed":
		return true, "the cluster has forgotten the node: stop it if it runs"
	case n.Stays != "" && n.Wish == "remove":
		return false, fmt.Sprintf("%s holds %s: %s", n.ID, counted(n.Replicas, "replica"), n.Stays)
	}
	_, text := drained(n)
	return false, text
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func nodeVerbCommand(f *opsFlags, v nodeVerb) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use: v.use + " NODE", Short: v.short, Args: exactly(1),
		Long: v.short + ".\n\n" + v.long + "\n\nThe cluster goes on by itself if the command is interrupted; the same " +
			"command again waits for the end.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			node, err := f.nodeID(c.Context(), args[0])
			if err != nil {
				return err
			}
			// The name may go to another node before the end: to one that was lost and had the name before.
			row, _, err := f.node(c.Context(), node)
			if err != nil {
				return err
			}
			query := url.Values{"node": {node}}
			if _, err := f.call(c.Context(), http.MethodPost, commandsPath+v.use+"?"+query.Encode()); err != nil {
				return err
			}
			id := node
			if row != nil && row.UUID != "" {
				node = row.UUID
			}
			return f.await(c, v, id, node, wait)
		},
	}
	c.Flags().DurationVar(&wait, "wait", waitDefault, "how long to wait for the end; 0 does not wait")
	return c
}

// await prints how far a node of that name and identity is until a verb has reached what it wants.
func (f *opsFlags) await(c *cobra.Command, v nodeVerb, name, node string, wait time.Duration) error {
	limit, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	var told progressLines
	for {
		row, moves, err := f.node(c.Context(), node)
		if err != nil {
			return err
		}
		done, text := v.reached(row)
		if done {
			return dial.PrintDone(c.OutOrStdout(), &f.Flags, map[string]any{"node": name, "done": true, "state": text}, text)
		}
		if err := told.print(c.ErrOrStderr(), text, moves); err != nil {
			return err
		}
		if wait <= 0 {
			return dial.PrintDone(c.OutOrStdout(), &f.Flags, map[string]any{"node": name, "done": false, "state": text},
				"the cluster works on it")
		}
		select {
		case <-limit.Done():
			return exit.With(exit.Failed, fmt.Errorf("%s is not done after %s, and goes on: %s", v.use, wait, text))
		case <-time.After(lookEvery):
		}
	}
}

// node returns what the cluster says of a node of that id or identity, nil if it lists none. It also returns how far replicas
// are that move.
func (f *opsFlags) node(ctx context.Context, id string) (*nodeRow, []moveRow, error) {
	body, err := f.call(ctx, http.MethodGet, "/api/cluster")
	if err != nil {
		return nil, nil, err
	}
	var s clusterStatus
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, nil, fmt.Errorf("cluster status: %w", err)
	}
	for i := range s.Nodes {
		if s.Nodes[i].ID == id || s.Nodes[i].UUID == id {
			return &s.Nodes[i], s.Progress, nil
		}
	}
	return nil, s.Progress, nil
}

func rebalanceCommand(f *opsFlags) *cobra.Command {
	return &cobra.Command{
		Use: "rebalance [NODE]", Short: "Hand leaderships to the nodes that should have them", Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("%s takes at most one node, got %d arguments", c.CommandPath(), len(args))
			}
			return nil
		},
		Long: "Hand leaderships to the nodes that should have them, or to one of them. Leaders come back by themselves, " +
			"but not for ten minutes after an operator has moved them. Replicas are always balanced.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			query := url.Values{}
			if len(args) > 0 {
				node, err := f.nodeID(c.Context(), args[0])
				if err != nil {
					return err
				}
				query.Set("node", node)
			}
			body, err := f.call(c.Context(), http.MethodPost, commandsPath+"rebalance?"+query.Encode())
			if err != nil {
				return err
			}
			var r struct {
				Moved int      `json:"moved"`
				Stay  []string `json:"stay"`
			}
			if err := json.Unmarshal(body, &r); err != nil {
				return fmt.Errorf("rebalance: %w", err)
			}
			text := strings.Join(append([]string{"handed over " + counted(r.Moved, "leadership")}, r.Stay...), "\n")
			return dial.PrintDone(c.OutOrStdout(), &f.Flags, map[string]any{"moved": r.Moved, "stay": r.Stay}, text)
		},
	}
}
