package client

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// bar draws how far a long command is, on a terminal; into a file or a pipe it writes nothing,
// because the command's result says the same.
type bar struct {
	w     io.Writer
	total uint64
	of    string // what is counted in bytes whose end nobody knows; empty for things that are counted one by one
	began time.Time
	drawn time.Time
	any   bool
}

const (
	barWidth = 30
	// barPause keeps a fast command from spending its time on the terminal.
	barPause = 100 * time.Millisecond
)

func newBar(w io.Writer, total uint64) *bar {
	p := &bar{total: total, began: time.Now()}
	if dial.IsTerminal(w) {
		p.w = w
	}
	return p
}

// show draws the bar with that many done.
func (p *bar) show(done uint64) {
	if p.w == nil || time.Since(p.drawn) < barPause && (done < p.total || p.total == 0) {
		return
	}
	p.drawn, p.any = time.Now(), true
	_, _ = io.WriteString(p.w, "\r"+p.line(done, time.Since(p.began)))
}

// newMeter counts the bytes of something whose size nobody knows.
func newMeter(w io.Writer, of string) *bar {
	p := newBar(w, 0)
	p.of = of
	return p
}

// line is what the terminal shows after that time.
func (p *bar) line(done uint64, after time.Duration) string {
	if p.of != "" {
		rate := uint64(float64(done) / max(after.Seconds(), 0.001))
		return fmt.Sprintf("%-16s %s, %s/s    ", p.of, sizeText(done), sizeText(rate))
	}
	if p.total == 0 && done > 0 { // nobody knows how many come
		return fmt.Sprintf("%d  %.0f/s    ", done, float64(done)/max(after.Seconds(), 0.001))
	}
	share := 1.0
	if p.total > 0 {
		share = min(1, float64(done)/float64(p.total))
	}
	full := int(share * barWidth)
	rate := float64(done) / max(after.Seconds(), 0.001)
	return fmt.Sprintf("[%s%s] %3.0f %%  %d of %d  %.0f/s ", strings.Repeat("#", full),
		strings.Repeat(".", barWidth-full), 100*share, done, p.total, rate)
}

// end leaves the bar as it is and goes to the next line.
func (p *bar) end() {
	if p.any {
		_, _ = io.WriteString(p.w, "\n")
	}
}

// sizeText writes a number of bytes for people.
func sizeText(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
