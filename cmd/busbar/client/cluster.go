package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const maxStatusBytes = 16 << 20

// catalogName is what people call partition 0.
const catalogName = "catalog"

// TransferPath is where the operations port moves a leader.
const TransferPath = "/api/cluster/transfer-leader"

// clusterStatus is what GET /api/cluster answers.
type clusterStatus struct {
	Clock *struct {
		AheadMillis int64 `json:"aheadMillis"`
		Wrong       bool  `json:"wrong"`
	} `json:"clock"`
	Alarms []struct {
		Name   string `json:"name"`
		Reason string `json:"reason"`
	} `json:"alarms"`
	ClusterVersion string    `json:"clusterVersion"`
	Knows          string    `json:"knows"`
	Nodes          []nodeRow `json:"nodes"`
	Moves          []int     `json:"moves"`
	Progress       []moveRow `json:"progress"`
	Rehomings      []struct {
		Entity string `json:"entity"`
		Share  int    `json:"share"`
		From   int    `json:"from"`
		To     int    `json:"to"`
		Step   string `json:"step"`
		Why    string `json:"why"`
		Left   int    `json:"left"`
	} `json:"rehomings"`
	// says has what the nodes say of themselves, by node; it comes from another path.
	says       map[string]NodeHealth
	Partitions []struct {
		ID       int      `json:"id"`
		Leader   string   `json:"leader"`
		Term     uint64   `json:"term"`
		Replicas []string `json:"replicas"`
		Applied  uint64   `json:"applied"`
		Failure  string   `json:"failure"`
		Differs  []string `json:"differs"`
	} `json:"partitions"`
}

// opsFlags reach the operations port of a node.
type opsFlags struct {
	dial.Flags
	base string
	// unverified accepts every certificate of the port. Only a probe may set it, which sends nothing secret.
	unverified bool
}

// opsUsage describes the flag --ops.
const opsUsage = "operations port of any node (environment: BUSBAR_OPS; default http://127.0.0.1:5300)"

// NewClusterCommand makes busbar cluster: nodes, partitions and leaders.
func NewClusterCommand() *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "Look at the cluster, move leaders, and drain or remove nodes",
		Args: cobra.NoArgs, RunE: showHelp}
	f := addOpsFlags(c)
	c.AddCommand(dial.AddWatch(clusterStatusCommand(f), &f.Flags), transferLeaderCommand(f), rebalanceCommand(f), rehomeCommand(f), clusterHealthCommand(f),
		clusterDoctorCommand(f), upgradeCommand(f))
	for _, v := range nodeVerbs {
		c.AddCommand(nodeVerbCommand(f, v))
	}
	return c
}

// addOpsFlags gives a command and its subcommands the flags that reach the operations port.
func addOpsFlags(c *cobra.Command) *opsFlags {
	f := &opsFlags{}
	dial.AddOutputFlag(c, &f.Flags)
	flags := c.PersistentFlags()
	flags.StringVar(&f.base, "ops", "", opsUsage)
	flags.DurationVar(&f.Timeout, "timeout", 30*time.Second, "limit of one request")
	f.AddReach(c, managesUsage)
	return f
}

func clusterStatusCommand(f *opsFlags) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show nodes and partitions", Args: exactly(0),
		Long: "Show nodes and partitions. The exit code is 0 if there was an answer, whatever it shows: busbar cluster health " +
			"tells by its exit code whether the cluster is healthy.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			body, err := f.call(c.Context(), http.MethodGet, "/api/cluster")
			if err != nil {
				return err
			}
			says := map[string]NodeHealth{}
			// A node of an older version does not tell these; the table has a dash then.
			if h, err := f.health(c.Context()); err == nil {
				for _, n := range h.Nodes {
					says[n.ID] = n
				}
			}
			if f.Output == "json" {
				return printStatusAsJSON(c.OutOrStdout(), body, says)
			}
			s := clusterStatus{says: says}
			if err := json.Unmarshal(body, &s); err != nil {
				return fmt.Errorf("cluster status: %w", err)
			}
			return printStatus(c.OutOrStdout(), s)
		},
	}
}

// printStatusAsJSON prints an answer of GET /api/cluster, to which it adds what each node says of itself: version, uptime and
// disk. All other fields stay as they are.
func printStatusAsJSON(w io.Writer, body []byte, says map[string]NodeHealth) error {
	var all map[string]json.RawMessage
	var nodes []map[string]any
	err := json.Unmarshal(body, &all)
	if err == nil {
		err = json.Unmarshal(all["nodes"], &nodes)
	}
	if err != nil {
		return fmt.Errorf("cluster status: %w", err)
	}
	for _, n := range nodes {
		id, _ := n["id"].(string)
		if s := says[id]; s.Version != "" {
			n["version"], n["uptimeMillis"] = s.Version, s.UptimeMillis
			n["diskFreeBytes"], n["diskTotalBytes"] = s.DiskFree, s.DiskTotal
		}
	}
	if all["nodes"], err = json.Marshal(nodes); err != nil {
		return err
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(text))
	return err
}

func transferLeaderCommand(f *opsFlags) *cobra.Command {
	return &cobra.Command{
		Use: "transfer-leader PARTITION NODE", Short: "Make another replica lead a partition, or the catalog",
		Args: exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			partition := args[0]
			if partition == catalogName {
				partition = "0"
			}
			if _, err := strconv.ParseUint(partition, 10, 15); err != nil {
				return exit.Usagef("partition %q is neither a number nor %s", args[0], catalogName)
			}
			node, err := f.nodeID(c.Context(), args[1])
			if err != nil {
				return err
			}
			query := url.Values{"partition": {partition}, "to": {node}}
			if _, err := f.call(c.Context(), http.MethodPost, TransferPath+"?"+query.Encode()); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), &f.Flags,
				map[string]any{"partition": partition, "leader": node},
				fmt.Sprintf("partition %s is led by %s", args[0], node))
		},
	}
}

// ClusterNames are the names of the nodes, and the partitions that may be named, as far as the operations port tells them in
// time. They are for completions.
func ClusterNames(f *dial.Flags, ops string, limit time.Duration) (nodes, partitions []string) {
	o := &opsFlags{Flags: *f, base: ops}
	o.Timeout = limit
	body, err := o.call(context.Background(), http.MethodGet, "/api/cluster")
	if err != nil {
		return nil, nil
	}
	var s clusterStatus
	if json.Unmarshal(body, &s) != nil {
		return nil, nil
	}
	for _, n := range s.Nodes {
		nodes = append(nodes, n.ID)
	}
	for _, p := range s.Partitions {
		name := strconv.Itoa(p.ID)
		if p.ID == 0 {
			name = catalogName
		}
		partitions = append(partitions, name)
	}
	return nodes, partitions
}

// nodeID completes the beginning of a node's id, if only one node has it.
func (f *opsFlags) nodeID(ctx context.Context, text string) (string, error) {
	body, err := f.call(ctx, http.MethodGet, "/api/cluster")
	if err != nil {
		return "", err
	}
	var s clusterStatus
	if err := json.Unmarshal(body, &s); err != nil {
		return "", fmt.Errorf("cluster status: %w", err)
	}
	var found []string
	for _, n := range s.Nodes {
		if n.ID == text || n.Address == text {
			return n.ID, nil
		}
		if strings.HasPrefix(n.ID, text) {
			found = append(found, n.ID)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", exit.With(exit.NotFound, fmt.Errorf("no node is called %s", text))
	}
	return "", exit.Usagef("%s may be any of %s", text, strings.Join(found, ", "))
}

// managesUsage describes the connection string of a command for which a token is needed at times.
const managesUsage = "connection string whose policy has the Manage right (environment: SERVICEBUS_CONNECTION_STRING); " +
	"not needed on the host of a --dev node"

// call sends a request. A command has a token of the connection string, if there is one; most of what is only looked at is
// open.
func (f *opsFlags) call(ctx context.Context, method, path string) ([]byte, error) {
	if method == http.MethodGet {
		return f.ask(ctx, method, path, nil, "")
	}
	return f.callProven(ctx, method, path)
}

// callProven sends a request with a token of the connection string, or without a token if there is none.
func (f *opsFlags) callProven(ctx context.Context, method, path string) ([]byte, error) {
	token, given := "", f.connects()
	if given {
		t, err := f.Target()
		if err != nil {
			return nil, err
		}
		token = t.Token("", time.Now())
	}
	body, err := f.ask(ctx, method, path, nil, token)
	return body, needsManage(given, err)
}

// connects tells whether there is a connection string.
func (f *opsFlags) connects() bool {
	source, err := f.Source()
	return err == nil && source.Connection != ""
}

// needsManage says what a refused request without a token lacks.
func needsManage(given bool, err error) error {
	if !given && exit.Code(err) == exit.Unauthorised {
		return exit.With(exit.Unauthorised, fmt.Errorf("%w: give --connection-string or set "+
			"SERVICEBUS_CONNECTION_STRING, with a policy that has the Manage right", err))
	}
	return err
}

// ask sends one request, with a token if there is one.
func (f *opsFlags) ask(ctx context.Context, method, path string, content io.Reader, token string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	res, err := f.open(ctx, method, path, content, token)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxStatusBytes))
	if err != nil {
		return nil, fmt.Errorf("operations port: %w", err)
	}
	return body, nil
}

// address is the URL of the operations port that is asked.
func (f *opsFlags) address() (string, error) {
	base := f.base
	if base == "" {
		source, err := f.Source()
		if err != nil {
			return "", err
		}
		base = source.Ops
	}
	if base == "" {
		base = "http://127.0.0.1:5300"
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	return base, nil
}

// open sends one request and returns the answer if it is a success. The caller reads its body, and closes it.
func (f *opsFlags) open(ctx context.Context, method, path string, content io.Reader, token string) (*http.Response, error) {
	base, err := f.address()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, content)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("operations port: %w", err)
	}
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusNoContent {
		return res, nil
	}
	defer res.Body.Close()
	var doc struct{ Error, Reason string }
	if body, err := io.ReadAll(io.LimitReader(res.Body, maxStatusBytes)); err == nil {
		_ = json.Unmarshal(body, &doc)
	}
	path, _, _ = strings.Cut(path, "?")
	err = exit.FromHTTP(path, res.StatusCode, doc.Error+doc.Reason)
	if res.StatusCode == http.StatusServiceUnavailable {
		return nil, &laterError{err}
	}
	return nil, err
}

// laterError is a refusal that may end by itself, as when a partition has a leader again.
type laterError struct{ error }

func (e *laterError) Unwrap() error { return e.error }

// client trusts the authorities of the system, and that of --ca-file.
func (f *opsFlags) client() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if f.unverified {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	}
	source, err := f.Source()
	if err != nil {
		return nil, err
	}
	if source.CAFile != "" {
		roots, err := dial.ReadRoots(source.CAFile)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	transport.DisableKeepAlives = true // a command has few requests, and nobody closes what is idle
	return &http.Client{Transport: transport}, nil
}

func printStatus(w io.Writer, s clusterStatus) error {
	nodes := [][]string{{"NODE", "STATE", "ADDRESS", "LEADS", "ZONE", "VERSION", "UPTIME", "DISK FREE"}}
	var notes []string
	for _, n := range s.Nodes {
		leads := 0
		for _, p := range s.Partitions {
			if p.Leader == n.ID {
				leads++
			}
		}
		version, uptime, disk := "-", "-", "-"
		if says, ok := s.says[n.ID]; ok && says.Version != "" {
			version, uptime = says.Version, (time.Duration(says.UptimeMillis) * time.Millisecond).Round(time.Second).String()
			disk = fmt.Sprintf("%d of %d MiB", says.DiskFree>>20, says.DiskTotal>>20)
		}
		nodes = append(nodes, []string{n.ID, n.State, n.Address, strconv.Itoa(leads), cmp.Or(n.Zone, "-"), version, uptime, disk})
		if n.Wish != "" {
			_, text := drained(&n)
			notes = append(notes, fmt.Sprintf("%s is wanted empty (%s): %s", n.ID, n.Wish, text))
		}
	}
	if err := dial.PrintTable(w, nodes); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	rows := [][]string{{"PARTITION", "LEADER", "TERM", "APPLIED", "REPLICAS"}}
	for _, p := range s.Partitions {
		replicas := slices.Clone(p.Replicas)
		for i := range replicas {
			replicas[i] = shortID(replicas[i])
		}
		name := strconv.Itoa(p.ID)
		if p.ID == 0 {
			name = catalogName
		}
		rows = append(rows, []string{name, shortID(p.Leader), strconv.FormatUint(p.Term, 10),
			strconv.FormatUint(p.Applied, 10), strings.Join(replicas, " ")})
		if p.Failure != "" {
			notes = append(notes, fmt.Sprintf("partition %s: the replica here does not serve: %s", name, p.Failure))
		}
		for _, d := range p.Differs {
			notes = append(notes, fmt.Sprintf("partition %s: %s", name, d))
		}
	}
	if err := dial.PrintTable(w, rows); err != nil {
		return err
	}
	for _, m := range s.Progress {
		notes = append(notes, m.text())
	}
	if s.Clock != nil && s.Clock.Wrong {
		ahead := time.Duration(s.Clock.AheadMillis) * time.Millisecond
		notes = append(notes, fmt.Sprintf("the clock of the node that answers is %s ahead of the others': set it", ahead))
	}
	if s.ClusterVersion != s.Knows {
		notes = append(notes, fmt.Sprintf("the cluster version is %s, and the program of the node that answers knows %s: see "+
			"busbar cluster upgrade status", s.ClusterVersion, s.Knows))
	}
	for _, a := range s.Alarms {
		notes = append(notes, fmt.Sprintf("alarm %s of the node that answers: %s", a.Name, a.Reason))
	}
	if len(notes) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	return err
}

// shortID is the beginning of a node's id, which is enough for people.
func shortID(id string) string {
	if id == "" {
		return "none"
	}
	first, _, _ := strings.Cut(id, "-")
	return first
}
