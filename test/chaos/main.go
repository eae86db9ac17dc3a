package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/namespaces"
)

func main() {
	if os.Getenv(superviseVariable) != "" {
		superviseMain(os.Stdin, os.Stdout, os.Stderr)
		return
	}
	os.Exit(chaos(os.Args[1:]))
}

// options are the command line.
type options struct {
	minutes, hours float64
	seed           uint64
	nodes          int
	binary, dir    string
	earlier        string
	network        string
	faults         string
	outages        bool
	trials, rounds int
	keep           bool
}

// chaos runs one command line. The exit code is 0 when nothing broken was found, 1 when something was, and 2 for a
// usage error. It is 3 when the run does not count because its faults did not bite.
func chaos(args []string) int {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Float64Var(&o.minutes, "minutes", 10, "length of the run, all networks together")
	f.Float64Var(&o.hours, "soak", 0, "instead: hours of load with sparse faults and leak budgets")
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "chooses faults and times")
	f.IntVar(&o.nodes, "nodes", 3, "size of the cluster")
	f.StringVar(&o.binary, "binary", "../../bin/busbar", "the broker")
	f.StringVar(&o.earlier, "earlier", "git",
		"the program that nodes begin with and go back to; git: that of the commit before, if there is a history; none")
	f.StringVar(&o.dir, "dir", "", "where nodes, logs and the history are (default: a temporary directory)")
	f.StringVar(&o.network, "network", "", "bridge, proxies or loopback (default: bridge, then proxies, as root)")
	f.StringVar(&o.faults, "faults", "", "comma-separated names of the only faults to make")
	f.IntVar(&o.rounds, "powerloss", 0, "instead: how often all nodes lose power at once under load")
	f.BoolVar(&o.outages, "outage", false,
		"instead: measure what clients of other nodes see of -faults stop, kill, pause, host, stall")
	f.IntVar(&o.trials, "trials", 20, "how often each of them is made")
	f.BoolVar(&o.keep, "keep", false, "keep the directory when nothing was found")
	if err := f.Parse(args); err != nil {
		return 2
	}
	why := noNamespaces()
	if why == nil && !namespaces.Inside() && o.network != overLoopback {
		return moveInside()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := o.run(ctx, why, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	return code
}

// networks are the kinds of network that the cluster runs over, one after the other.
func (o *options) networks() []string {
	switch {
	case !namespaces.Inside():
		return []string{overLoopback}
	case o.network != "":
		return []string{o.network}
	case o.rounds > 0:
		return []string{overBridge} // the disks matter
	}
	return []string{overBridge, overProxies}
}

func (o *options) run(ctx context.Context, why error, out io.Writer) (code int, err error) {
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return 2, err
	}
	if _, err := os.Stat(binary); err != nil {
		return 2, fmt.Errorf("%w: run make build", err)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "busbar-chaos-"); err != nil {
			return 2, err
		}
	} else {
		o.keep = true
	}
	networks, disks := o.networks(), namespaces.Inside()
	if !namespaces.Inside() {
		fmt.Fprintln(out, "no namespaces and no disks of their own:", why)
	}
	sup, err := startSupervisor()
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, sup.close()) }()
	if namespaces.Inside() {
		if err := furnish(); err != nil {
			return 2, err
		}
		if err := noDisks(); err != nil {
			disks = false
			fmt.Fprintln(out, "no disks of their own:", err)
			if o.rounds > 0 {
				return 2, errors.New("a node without a disk of its own cannot lose power")
			}
		}
	}
	if o.outages {
		return o.outage(ctx, bedConfig{dir: o.dir, binary: binary, network: networks[0], nodes: o.nodes,
			disks: disks}, sup, out)
	}
	if _, err := namesOf(o.faults); err != nil {
		return 2, err
	}
	earlier, err := o.earlierProgram(out)
	if err != nil {
		return 2, err
	}
	for _, network := range networks {
		cfg := runConfig{seed: o.seed, log: out, leaks: o.hours > 0, schedule: o.schedule(len(networks)),
			bed: bedConfig{dir: filepath.Join(o.dir, network), binary: binary, network: network,
				nodes: o.nodes, disks: disks, earlier: earlier}}
		result, err := run(ctx, cfg, sup)
		if err != nil {
			return 1, fmt.Errorf("%s (everything is in %s): %w", network, o.dir, err)
		}
		result.write(out)
		if result.bad() {
			code = 1
		} else if result.counts() != nil && code == 0 {
			code = 3
		}
	}
	if code == 0 && !o.keep {
		return 0, os.RemoveAll(o.dir)
	}
	fmt.Fprintln(out, "everything is in", o.dir)
	return code, nil
}

// earlierProgram is the one that nodes begin with, "" if the programs are not exchanged in this run.
func (o *options) earlierProgram(out io.Writer) (string, error) {
	switch {
	case o.earlier == "none", o.rounds > 0, o.hours > 0:
		return "", nil
	case o.earlier != "git":
		return filepath.Abs(o.earlier)
	}
	p, err := cluster.PreviousProgram(o.dir, func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) })
	if err != nil {
		fmt.Fprintln(out, "SKIPPED: no program is exchanged:", err)
		return "", nil
	}
	return p.Path, nil
}

// outage measures instead of breaking at random.
func (o *options) outage(ctx context.Context, cfg bedConfig, sup *supervisor, out io.Writer) (int, error) {
	kinds, err := parseKinds(o.faults)
	if err != nil {
		return 2, err
	}
	m := &outage{kinds: kinds, trials: o.trials, seed: o.seed, out: out}
	if err := measureOutages(ctx, m, cfg, sup); err != nil {
		return 1, fmt.Errorf("everything is in %s: %w", o.dir, err)
	}
	if !o.keep {
		return 0, os.RemoveAll(o.dir)
	}
	return 0, nil
}

// schedule divides the time of a run.
func (o *options) schedule(runs int) schedule {
	s := schedule{
		total: time.Duration(o.minutes * float64(time.Minute) / float64(runs)),
		hold:  [2]time.Duration{5 * time.Second, 25 * time.Second},
		rest:  [2]time.Duration{5 * time.Second, 20 * time.Second},
	}
	if o.hours > 0 {
		s.total = time.Duration(o.hours * float64(time.Hour) / float64(runs))
		s.rest = [2]time.Duration{10 * time.Minute, 20 * time.Minute}
		if o.hours < 1 {
			s.rest = [2]time.Duration{30 * time.Second, time.Minute}
		}
	}
	if o.rounds > 0 { // what is acknowledged until the moment of a loss is what counts
		s.exactly, s.serving = slices.Repeat([]combination{{"power loss of all"}}, o.rounds), true
		s.calm = time.Second
		s.hold = [2]time.Duration{100 * time.Millisecond, 500 * time.Millisecond}
		s.rest = [2]time.Duration{time.Second, 3 * time.Second}
		return s
	}
	s.calm = min(time.Minute, s.total/10)
	if s.total < 5*time.Minute { // a short run: more faults, each shorter
		s.hold = [2]time.Duration{3 * time.Second, 8 * time.Second}
		s.rest = [2]time.Duration{2 * time.Second, 6 * time.Second}
	}
	s.allowed, _ = namesOf(o.faults) // run has looked for errors
	return s
}

// namesOf reads the names of nemeses, nil for all.
func namesOf(list string) (map[string]bool, error) {
	if list == "" {
		return nil, nil
	}
	var known []string
	for _, n := range nemeses() {
		known = append(known, n.name)
	}
	names := map[string]bool{}
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no fault is named %q: they are %s", name, strings.Join(known, ", "))
		}
		names[name] = true
	}
	return names, nil
}
