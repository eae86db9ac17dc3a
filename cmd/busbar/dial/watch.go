package dial

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// IsTerminal tells whether somebody looks at what is written.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// minEvery keeps a command that looks again and again from being a load.
const minEvery = 100 * time.Millisecond

// AddWatch lets a command that shows something show it again and again: in place on a terminal, and elsewhere when it has
// changed.
func AddWatch(c *cobra.Command, f *Flags) *cobra.Command {
	var on bool
	var every time.Duration
	c.Flags().BoolVar(&on, "watch", false, "look again and again, until interrupted; not on a terminal: print when it has changed")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "with --watch: the pause between two looks")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !on {
			return run(c, args)
		}
		if err := f.CheckOutput(); err != nil {
			return err
		}
		if every < minEvery {
			return exit.Usagef("--every is %v, want at least %v", every, minEvery)
		}
		return Again(c, every, func() error { return run(c, args) })
	}
	return c
}

// Again calls show again and again, until the command is interrupted. On a terminal the text of show is drawn in place, and
// elsewhere it is printed when it has changed. The first failure ends the command; later ones are shown.
func Again(c *cobra.Command, every time.Duration, show func() error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	before := c.Context()
	c.SetContext(ctx)
	out := c.OutOrStdout()
	defer func() { c.SetContext(before); c.SetOut(out) }()
	terminal := IsTerminal(out)
	for last, rounds := "", 0; ; rounds++ {
		var text bytes.Buffer
		c.SetOut(&text)
		err := show()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && rounds == 0:
			_, _ = out.Write(text.Bytes())
			return err
		case err != nil:
			fmt.Fprintf(&text, "busbar: %v\n", err)
		}
		shown := text.String()
		switch {
		case terminal: // from the upper left corner, what is left of the last one is wiped out
			shown = fmt.Sprintf("\x1b[H\x1b[2J%s  every %v\n\n%s", time.Now().Format(time.DateTime), every, shown)
		case shown == last:
			shown = ""
		}
		if _, err := io.WriteString(out, shown); err != nil {
			return err
		}
		last = text.String()
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}
