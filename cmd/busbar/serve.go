package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/notify"
	"github.com/busbar-mq/busbar/cmd/busbar/process"
	"github.com/busbar-mq/busbar/cmd/busbar/tracing"
	"github.com/busbar-mq/busbar/fsm"
)

// addSettings gives a command a flag per setting and returns where the given ones are collected.
func addSettings(c *cobra.Command) (file *string, given map[string][]string) {
	given = map[string][]string{}
	file = c.Flags().String("config", "", "configuration file, YAML (environment: BUSBAR_CONFIG)")
	for _, s := range settings() {
		f := c.Flags().VarPF(&collector{s.name, given, s.boolean}, s.name, "", s.usage)
		if s.boolean {
			f.NoOptDefVal = "true"
		}
	}
	return file, given
}

// collector is a flag that remembers every value it is given.
type collector struct {
	name    string
	into    map[string][]string
	boolean bool
}

func (c *collector) Set(v string) error { c.into[c.name] = append(c.into[c.name], v); return nil }
func (c *collector) String() string     { return "" }
func (c *collector) Type() string {
	if c.boolean {
		return "bool"
	}
	return "value"
}

func newServeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker node",
		Args:  cobra.NoArgs,
	}
	file, given := addSettings(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error { return runNode(cmd, *file, given, nil) }
	return c
}

// serve runs a node until ctx ends, a signal comes, or the node fails by itself. The function served, unless it is nil, is
// called when the node serves, and ends soon when its context does.
func serve(ctx context.Context, cfg Config, out io.Writer, signals <-chan os.Signal, served func(context.Context, *node)) error {
	log, lines := newLogger(cfg, os.Stderr)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hangups, done := make(chan struct{}, 1), make(chan struct{})
	defer close(done)
	end := &ending{signals: signals, stop: stop, begun: ctx.Done(), reload: hangups, exit: os.Exit, log: log}
	go end.run(done)
	manager := newService(os.LookupEnv, os.Getpid(), log)
	manager.say(notify.Status("waiting for the cluster"))
	if cfg.QuietRuntime {
		if err := process.QuietRuntime(); err != nil {
			log.Debug("the runtime is left as it is", "reason", err)
		}
	}
	n, err := openNode(ctx, cfg, log)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			log.Info("stopped before the node served")
			return nil
		}
		return err
	}
	lines.nameBy(func(id string) string { // of the catalog alone: gossip may hold its lock while it writes an entry
		peer, _ := (&status{n}).catalog().Node(fsm.NodeID(id))
		return peer.Name
	})
	if cfg.Dev {
		n.greet(ctx, out)
	}
	if cfg.Ephemeral {
		if err := process.ForgetProgram(); err != nil {
			log.Debug("the program stays in memory as its start left it", "reason", err)
		}
	}
	n.reloader.manager.Store(manager)
	manager.say(notify.Ready, notify.Status(serving))
	var beside sync.WaitGroup
	beside.Go(func() { n.reloader.run(ctx, hangups) })
	beside.Go(func() { manager.watch(ctx, n.alive) })
	if served != nil {
		beside.Go(func() { served(ctx, n) })
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-n.failed:
		log.Error("stopping", "error", failed)
		stop()
	}
	manager.say(notify.Stopping, notify.Status("handing over and closing"))
	beside.Wait() // so that nothing is replaced while it is closed
	stopping, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := n.close(stopping); err != nil {
		log.Warn("stopped", "error", err)
	}
	return failed
}

// alive returns why the node is not alive: its operations port does not answer, or its partitions. It asks nothing of other
// nodes, because a restart does not bring them back.
func (n *node) alive(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() { // what hangs must not hang the watchdog
		_ = n.host.Status()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/livez", nil)
		if err != nil {
			answer <- err
			return
		}
		response, err := inside{n.ops.Handler}.RoundTrip(request)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("/livez answers %s", http.StatusText(response.StatusCode))
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return errors.New("the node does not answer itself in time")
	}
}

// logName is the name of the log of all components.
const logName = "busbar"

// newLogger returns the log of a node, and the writer of its lines. The writer is nil if they are texts.
func newLogger(cfg Config, to *os.File) (hclog.Logger, *logLines) {
	options := &hclog.LoggerOptions{Name: logName, Level: cfg.logLevel(), Output: to}
	if cfg.LogFormat != "json" && (cfg.LogFormat != "auto" || onTerminal(to)) {
		return hclog.New(options), nil
	}
	lines := &logLines{to: to, node: cfg.NodeName}
	options.JSONFormat, options.Output = true, lines
	return hclog.New(options), lines
}

// logAuto is the log level that depends on who reads the log.
const logAuto = "auto"

// logLevel is that of the node. A developer at a terminal reads the greeting, and warnings.
func (c *Config) logLevel() hclog.Level {
	switch {
	case c.LogLevel != logAuto:
		return hclog.LevelFromString(c.LogLevel)
	case c.Dev && onTerminal(os.Stderr):
		return hclog.Warn
	}
	return hclog.Info
}

func onTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func newConfigCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at the configuration"}
	check := &cobra.Command{
		Use:   "check",
		Short: "Report every problem of a configuration without starting anything",
		Args:  cobra.NoArgs,
	}
	file, given := addSettings(check)
	check.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(*file, given, os.LookupEnv)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		paper, err := readCertificates(&cfg)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		warnings, fault := paper.faults(&cfg, time.Now())
		for _, warning := range warnings {
			fmt.Fprintln(cmd.OutOrStdout(), "warning:", warning)
		}
		if fault != nil {
			return exit.With(exit.Usage, fault)
		}
		if _, err := tracing.Wanted(); err != nil {
			return exit.With(exit.Usage, err)
		}
		if cfg.Entities != "" {
			all, _, err := entities.Read(cfg.Entities)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			for _, warning := range entities.CircleWarnings(all) {
				fmt.Fprintln(cmd.OutOrStdout(), "warning:", warning)
			}
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
		return err
	}
	c.AddCommand(check, newSchemaCommand())
	return c
}
