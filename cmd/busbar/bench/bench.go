package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Bounds of the load generator. They keep a slip of the finger from filling a machine.
const (
	maxWorkers = 10_000
	maxBody    = 64 << 20
	maxWindow  = 1 << 16
	maxBacklog = 1 << 20
	// minBody holds what a message carries about itself: when it was due, and its run.
	minBody = 16
)

// loadConfig says what load to make.
type loadConfig struct {
	Mode   string `json:"mode"` // send, receive, cycle, latency or idle
	Queue  string `json:"queue"`
	Queues int    `json:"queues"`         // more than 1: Queue-1, Queue-2, and so on; links take them in turn
	Name   string `json:"name,omitempty"` // of the row in a table

	Duration    time.Duration `json:"duration"` // that is measured
	Warmup      time.Duration `json:"warmup"`
	Connections int           `json:"connections"`
	Senders     int           `json:"senders"`
	Receivers   int           `json:"receivers"`
	Size        int           `json:"size"`     // bytes of the body
	Credit      int           `json:"credit"`   // of each receiver
	InFlight    int           `json:"inFlight"` // unconfirmed sends of each sender
	Backlog     int           `json:"backlog"`  // messages of a cycle that are sent and not settled, 0: no bound
	Rate        float64       `json:"rate"`     // messages/s of all senders, 0: as fast as possible
	Preload     int           `json:"preload,omitempty"`

	Settle      string `json:"settle"`      // first, second, or delete: receive-and-delete
	Concurrency int    `json:"concurrency"` // settlements in flight of each receiver, settle second

	Sessions        int  `json:"sessions,omitempty"`
	SessionMessages int  `json:"sessionMessages,omitempty"` // per accept of a session
	SessionState    bool `json:"sessionState,omitempty"`    // set it once per accept

	ReceiveBuffer int `json:"receiveBuffer,omitempty"` // bytes of each socket's receive buffer, 0: the system's

	PIDs []int `json:"pids,omitempty"` // processes of the broker

	version string // of this program, for the report
}

// NewCommand makes busbar bench.
func NewCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench [QUEUE]",
		Short: "Load a broker and measure it",
		Long: `Load an AMQP 1.0 broker and measure throughput, latency and what a message costs.

send     as many confirmed messages as possible        receive  drain what was preloaded
cycle    send, receive and settle at the same time     latency  a cycle at a fixed rate; a message is
                                                                timed from when it was due, so that a
                                                                stall is charged to all it delays
idle     nothing: what the processes of --pid take for themselves in a second

With a connection string tokens prove the right (CBS); --url speaks to other brokers with SASL PLAIN
(amqp://user:password@host) or ANONYMOUS (amqp://host). Give --pid for every process of the broker to
learn what a message costs it.`,
	}
	f := dial.AddFlags(c)
	f.AddRowOutput(c)
	b := &command{client: f}
	b.addFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := b.cfg.resolve(); err != nil {
			return err
		}
		b.cfg.version = f.Version()
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
		defer stop()
		r, err := b.run(ctx, args, c.ErrOrStderr())
		if err != nil {
			return err
		}
		return r.print(c.OutOrStdout(), f.Output)
	}
	return c
}

// command is the command line of bench.
type command struct {
	client      *dial.Flags
	cfg         loadConfig
	urls, hosts []string
	create      bool
	partitioned bool
	baseline    string
	nodes       int
}

func (b *command) addFlags(c *cobra.Command) {
	flags, cfg := c.Flags(), &b.cfg
	flags.StringVar(&cfg.Mode, "mode", "cycle", "send, receive, cycle, latency or idle")
	flags.StringVar(&cfg.Name, "name", "", "name of the row, with --output row")
	flags.StringArrayVar(&b.urls, "url", nil, "amqp:// or amqps:// address of a broker; connections rotate over several")
	flags.StringArrayVar(&b.hosts, "host", nil, "host:port instead of the connection string's; connections rotate over several")
	flags.BoolVar(&b.create, "create", false, "create the queue if it does not exist (connection string only)")
	flags.BoolVar(&b.partitioned, "partitioned", false, "with --create: spread the queue over all partitions")
	flags.IntVar(&cfg.Queues, "queues", 1, "queues, QUEUE-1 and so on if there are several; links take them in turn")
	flags.DurationVar(&cfg.Duration, "duration", 10*time.Second, "how long to measure")
	flags.DurationVar(&cfg.Warmup, "warmup", 2*time.Second, "how long to run before")
	flags.IntVar(&cfg.Connections, "connections", 2, "connections")
	flags.IntVar(&cfg.Senders, "senders", 1, "sending links")
	flags.IntVar(&cfg.Receivers, "receivers", 0, "receiving links (default 1, with sessions one for each)")
	flags.IntVar(&cfg.Size, "size", 1024, "bytes of a body")
	flags.IntVar(&cfg.Credit, "credit", 1000, "credit of a receiver")
	flags.IntVar(&cfg.InFlight, "in-flight", 1000, "unconfirmed messages of a sender")
	flags.IntVar(&cfg.Backlog, "backlog", 10_000, "messages of a cycle sent and not settled, at most; 0 for no bound")
	flags.Float64Var(&cfg.Rate, "rate", 0, "messages per second (default: no limit; 2000 with --mode latency)")
	flags.IntVar(&cfg.Preload, "preload", 100_000, "messages to drain, with --mode receive")
	flags.StringVar(&cfg.Settle, "settle", "first", "first, second, or delete (receive-and-delete)")
	flags.IntVar(&cfg.Concurrency, "concurrency", 64, "settlements in flight of a receiver, with --settle second")
	flags.IntVar(&cfg.Sessions, "sessions", 0, "spread the messages over so many sessions")
	flags.IntVar(&cfg.SessionMessages, "session-messages", 100, "messages taken per accept of a session")
	flags.BoolVar(&cfg.SessionState, "session-state", false, "set the session's state once per accept")
	flags.IntVar(&cfg.ReceiveBuffer, "receive-buffer", 0, "bytes of the receive buffer of each socket (default: the system's)")
	flags.IntSliceVar(&cfg.PIDs, "pid", nil, "process of the broker; may be repeated")
	flags.StringVar(&b.baseline, "baseline", "", "measure a part alone, on this machine: raft or frontend")
	flags.IntVar(&b.nodes, "nodes", 1, "voters of --baseline raft: 1 or 3")
}

func (b *command) run(ctx context.Context, args []string, progress io.Writer) (*report, error) {
	cfg := &b.cfg
	switch b.baseline {
	case "":
	case "raft":
		if b.nodes != 1 && b.nodes != 3 {
			return nil, exit.Usagef("--nodes must be 1 or 3")
		}
		return measureRaft(ctx, cfg, b.nodes)
	case "frontend":
		return measureFrontend(ctx, cfg)
	default:
		return nil, exit.Usagef("--baseline is raft or frontend")
	}
	if cfg.Mode == "idle" {
		return measureIdle(ctx, cfg)
	}
	d, err := newDialer(b.client, b.urls, b.hosts)
	if err != nil {
		return nil, err
	}
	d.receiveBuffer = cfg.ReceiveBuffer
	if cfg.Queue, err = d.queue(args); err != nil {
		return nil, err
	}
	if b.create {
		if err := d.create(ctx, cfg, b.partitioned); err != nil {
			return nil, err
		}
	}
	return measure(ctx, cfg, d, progress)
}

// resolve fills what follows from the rest and refuses what cannot be meant.
func (b *loadConfig) resolve() error {
	var faults []string
	within := func(name string, v, low, high int) {
		if v < low || v > high {
			faults = append(faults, fmt.Sprintf("--%s must be %d to %d", name, low, high))
		}
	}
	if !slices.Contains([]string{"send", "receive", "cycle", "latency", "idle"}, b.Mode) {
		faults = append(faults, "--mode is send, receive, cycle, latency or idle")
	}
	if b.Mode == "idle" && len(b.PIDs) == 0 {
		faults = append(faults, "--mode idle needs a --pid for each process of the broker")
	}
	if !slices.Contains([]string{"first", "second", "delete"}, b.Settle) {
		faults = append(faults, "--settle is first, second or delete")
	}
	b.fill()
	if b.Mode == "cycle" {
		within("backlog", b.Backlog, 0, maxBacklog)
	}
	within("queues", b.Queues, 1, maxWorkers)
	if b.sends() && b.Senders < b.Queues || b.receives() && b.Receivers < b.Queues {
		faults = append(faults, "--senders and --receivers must be at least --queues: each link is of one queue")
	}
	if b.Mode == "receive" {
		within("preload", b.Preload, 1, math.MaxInt32)
	}
	if b.Sessions != 0 {
		within("session-messages", b.SessionMessages, 1, maxWindow)
	}
	within("connections", b.Connections, 1, maxWorkers)
	within("senders", b.Senders, 1, maxWorkers)
	within("receivers", b.Receivers, 1, maxWorkers)
	within("sessions", b.Sessions, 0, math.MaxInt32)
	within("size", b.Size, minBody, maxBody)
	within("credit", b.Credit, 1, maxWindow)
	within("in-flight", b.InFlight, 1, maxWindow)
	within("receive-buffer", b.ReceiveBuffer, 0, maxBody)
	within("concurrency", b.Concurrency, 1, maxWindow)
	if b.Duration < 100*time.Millisecond || b.Warmup < 0 {
		faults = append(faults, "--duration must be at least 100ms, --warmup not negative")
	}
	if b.Rate < 0 || b.Rate > 1e7 || math.IsNaN(b.Rate) {
		faults = append(faults, "--rate must be 0 to 10000000")
	}
	if len(faults) > 0 {
		return exit.Usagef("%s", strings.Join(faults, "; "))
	}
	return nil
}

// fill sets what follows from the other settings, and takes back what does not count with them.
func (b *loadConfig) fill() {
	if b.Receivers == 0 {
		b.Receivers = 1
		if b.receives() {
			b.Receivers = max(1, b.Sessions)
		}
	}
	if b.Settle != "second" {
		b.Concurrency = 1
	}
	if b.Mode == "latency" && b.Rate == 0 {
		b.Rate = 2000
	}
	if b.Mode != "cycle" {
		b.Backlog = 0
	}
	if b.Mode == "receive" {
		b.Warmup = 0
	} else {
		b.Preload = 0
	}
	if b.Sessions == 0 {
		b.SessionMessages, b.SessionState = 0, false
	}
}

func (b *loadConfig) sends() bool    { return b.Mode != "receive" && b.Mode != "idle" }
func (b *loadConfig) receives() bool { return b.Mode != "send" && b.Mode != "idle" }

// queue returns the queue of the i-th sender or receiver.
func (b *loadConfig) queue(i int) string {
	if b.Queues == 1 {
		return b.Queue
	}
	return b.Queue + "-" + strconv.Itoa(i%b.Queues+1)
}

// sleepUntil waits for a moment; it reports false if ctx ends before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
