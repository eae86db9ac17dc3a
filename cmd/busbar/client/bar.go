package client

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// bar draws how far a long command is, on a terminal; into a file or a pipe it writes nothing,
// because the command's result says the same.
type bar struct {
	w     io.Writer
	total uint64
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
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.w = w
		}
	}
	return p
}

// show draws the bar with that many done.
func (p *bar) show(done uint64) {
	if p.w == nil || time.Since(p.drawn) < barPause && done < p.total {
		return
	}
	p.drawn, p.any = time.Now(), true
	_, _ = io.WriteString(p.w, "\r"+p.line(done, time.Since(p.began)))
}

// line is what the terminal shows after that time.
func (p *bar) line(done uint64, after time.Duration) string {
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
