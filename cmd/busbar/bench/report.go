package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// report is what a run found.
type report struct {
	Config   *loadConfig `json:"config"`
	Version  string      `json:"version"`
	Go       string      `json:"go"`
	CPUs     int         `json:"cpus"`
	Seconds  float64     `json:"seconds"`
	Sent     float64     `json:"sentPerSecond"`
	Received float64     `json:"receivedPerSecond"`
	Settled  float64     `json:"settledPerSecond"`

	Confirm  *spread `json:"confirm,omitempty"`
	EndToEnd *spread `json:"endToEnd,omitempty"`
	Settle   *spread `json:"settle,omitempty"`

	Cost *cost `json:"broker,omitempty"`
	Idle *idle `json:"idle,omitempty"` // set by --mode idle
	// Entries is set by --baseline raft.
	Entries float64 `json:"entriesPerSecond,omitempty"`
}

// cost is what one message cost the broker: all its processes together.
type cost struct {
	UserMicros    float64 `json:"userMicros"`
	SystemMicros  float64 `json:"systemMicros"`
	CPUMicros     float64 `json:"cpuMicros"`
	Cores         float64 `json:"cores"` // in use on average
	Reads         float64 `json:"readCalls"`
	Writes        float64 `json:"writeCalls"`
	WriteBytes    float64 `json:"writeBytes"`
	Switches      float64 `json:"contextSwitches"`
	MachineFlushs float64 `json:"machineFlushesPerSecond"` // of its disks, by whomever
}

// idle is what the processes of a broker take together while nobody asks them for anything.
type idle struct {
	CPUMillis float64 `json:"cpuMillisPerSecond"`
	Switches  float64 `json:"contextSwitchesPerSecond"`
	Megabytes float64 `json:"residentMegabytes"`
}

// newReport tells what happened between two moments.
func newReport(cfg *loadConfig, from, to counts) *report {
	r := &report{Config: cfg, Version: cfg.version, Go: runtime.Version(), CPUs: runtime.NumCPU()}
	r.Seconds = to.at.Sub(from.at).Seconds()
	r.Sent = float64(to.sent-from.sent) / r.Seconds
	r.Received = float64(to.received-from.received) / r.Seconds
	r.Settled = float64(to.settled-from.settled) / r.Seconds
	messages := float64(to.settled - from.settled)
	if !cfg.receives() {
		messages = float64(to.sent - from.sent)
	}
	if len(cfg.PIDs) == 0 || messages == 0 {
		return r
	}
	r.Cost = newCost(to.usage.since(from.usage), messages, r.Seconds)
	return r
}

func newCost(u usage, messages, seconds float64) *cost {
	micros := func(d time.Duration) float64 { return round(float64(d.Microseconds()) / messages) }
	return &cost{UserMicros: micros(u.User), SystemMicros: micros(u.System),
		CPUMicros: micros(u.User + u.System), Cores: round((u.User + u.System).Seconds() / seconds),
		Reads: round(float64(u.Reads) / messages), Writes: round(float64(u.Writes) / messages),
		WriteBytes:    math.Round(float64(u.WriteBytes) / messages),
		Switches:      round(float64(u.Switches) / messages),
		MachineFlushs: math.Round(float64(u.Flushes) / seconds)}
}

// measureIdle lets the time pass.
func measureIdle(ctx context.Context, cfg *loadConfig) (*report, error) {
	r := &measurement{cfg: cfg}
	from, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	if !sleepUntil(ctx, from.at.Add(cfg.Duration)) {
		return nil, ctx.Err()
	}
	to, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	report := newReport(cfg, from, to)
	u := to.usage.since(from.usage)
	report.Idle = &idle{CPUMillis: round(float64((u.User + u.System).Microseconds()) / 1000 / report.Seconds),
		Switches: math.Round(float64(u.Switches) / report.Seconds), Megabytes: math.Round(float64(u.Resident) / (1 << 20))}
	return report, nil
}

// round keeps three digits behind the point: more would be noise.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// fill adds the latencies, when all workers have ended.
func (b *report) fill(r *measurement) {
	b.Confirm, b.EndToEnd, b.Settle = r.confirm.spread(), r.endToEnd.spread(), r.settle.spread()
}

func (b *report) print(w io.Writer, output string) error {
	switch output {
	case "json":
		return dial.PrintJSON(w, b)
	case "row":
		_, err := fmt.Fprintln(w, b.row())
		return err
	}
	return dial.PrintTable(w, b.table())
}

// row is a line of the table in docs/benchmarks.md. It has name, messages/s, CPU, its user and system part,
// confirmation, end to end, settlement, write calls and bytes, and switches of the context. That of --mode idle has
// milliseconds of CPU and switches per second, and resident MiB.
func (b *report) row() string {
	if i := b.Idle; i != nil {
		return fmt.Sprintf("| %s | %.1f | %.0f | %.0f |", b.name(), i.CPUMillis, i.Switches, i.Megabytes)
	}
	two := func(s *spread) string {
		if s == nil {
			return "–"
		}
		return fmt.Sprintf("%.2f / %.2f", s.P50, s.P99)
	}
	cpu, parts, writes, switches := "–", "–", "–", "–"
	if c := b.Cost; c != nil {
		cpu = fmt.Sprintf("%.1f", c.CPUMicros)
		parts = fmt.Sprintf("%.1f + %.1f", c.UserMicros, c.SystemMicros)
		writes = fmt.Sprintf("%.2f / %.0f", c.Writes, c.WriteBytes)
		switches = fmt.Sprintf("%.2f", c.Switches)
	}
	return fmt.Sprintf("| %s | %.0f | %s | %s | %s | %s | %s | %s | %s |", b.name(), b.rate(), cpu, parts,
		two(b.Confirm), two(b.EndToEnd), two(b.Settle), writes, switches)
}

func (b *report) name() string {
	if b.Config.Name == "" {
		return b.Config.Mode
	}
	return b.Config.Name
}

func (b *report) rate() float64 {
	if b.Config.receives() {
		return b.Settled
	}
	return b.Sent
}

func (b *report) table() [][]string {
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	rows := [][]string{{"MEASURED", fmt.Sprintf("%.1f s, %s", b.Seconds, b.Config.Mode)}}
	if b.Config.sends() {
		rows = append(rows, []string{"sent", fmt.Sprintf("%.0f/s", b.Sent)})
	}
	if b.Config.receives() {
		rows = append(rows, []string{"received", fmt.Sprintf("%.0f/s", b.Received)},
			[]string{"settled", fmt.Sprintf("%.0f/s", b.Settled)})
	}
	if b.Entries > 0 {
		rows = append(rows, []string{"entries", fmt.Sprintf("%.0f/s", b.Entries)})
	}
	for _, l := range []struct {
		name string
		s    *spread
	}{{"confirmed", b.Confirm}, {"end to end", b.EndToEnd}, {"settled", b.Settle}} {
		if l.s != nil {
			rows = append(rows, []string{l.name + " ms", fmt.Sprintf(
				"mean %.2f  p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  max %.2f",
				l.s.Mean, l.s.P50, l.s.P90, l.s.P99, l.s.P999, l.s.Max)})
		}
	}
	if c := b.Cost; c != nil {
		rows = append(rows, []string{"broker CPU", fmt.Sprintf("%s µs a message: user %s, system %s; %s cores",
			f(c.CPUMicros), f(c.UserMicros), f(c.SystemMicros), f(c.Cores))},
			[]string{"broker I/O", fmt.Sprintf("a message: %s reads, %s writes, %s bytes to disk; flushes of the machine %s/s",
				f(c.Reads), f(c.Writes), f(c.WriteBytes), f(c.MachineFlushs))},
			[]string{"switches", f(c.Switches) + " of the context a message"})
	}
	if i := b.Idle; i != nil {
		rows = append(rows, []string{"broker CPU", f(i.CPUMillis) + " ms a second"},
			[]string{"switches", f(i.Switches) + " of the context a second"}, []string{"memory", f(i.Megabytes) + " MiB resident"})
	}
	return rows
}

// progress is the line that shows a run alive.
type progress struct {
	w    io.Writer
	run  *measurement
	quit chan struct{}
	done sync.WaitGroup
}

// newProgress shows nothing unless w is a terminal.
func newProgress(w io.Writer, r *measurement) *progress {
	p := &progress{run: r, quit: make(chan struct{})}
	if f, ok := w.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			p.w = w
		}
	}
	return p
}

func (p *progress) start() {
	if p.w == nil {
		return
	}
	p.done.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		var sent, settled uint64
		for {
			select {
			case <-p.quit:
				fmt.Fprint(p.w, "\r\x1b[K")
				return
			case <-t.C:
			}
			s, d := p.run.sent.Load(), p.run.settled.Load()
			fmt.Fprintf(p.w, "\r\x1b[K%4.0f s  sent %d/s  settled %d/s  behind %d  confirmed p50 %v p99 %v  end to end p50 %v p99 %v",
				time.Since(p.run.start).Seconds(), s-sent, d-settled, int64(s-d),
				p.run.confirm.percentile(50).Round(10*time.Microsecond), p.run.confirm.percentile(99).Round(10*time.Microsecond),
				p.run.endToEnd.percentile(50).Round(10*time.Microsecond), p.run.endToEnd.percentile(99).Round(10*time.Microsecond))
			sent, settled = s, d
		}
	})
}

func (p *progress) stop() {
	close(p.quit)
	p.done.Wait()
}
