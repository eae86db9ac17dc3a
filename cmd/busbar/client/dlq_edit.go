package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/lines"
)

func deadEditCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	var to string
	var keep bool
	c := &cobra.Command{
		Use: "edit QUEUE NUMBER", Short: "Change a dead letter in an editor, and send it again",
		Long: "Opens the dead letter as JSON in $VISUAL or $EDITOR. When the editor ends, the message is checked and sent to its " +
			"queue, and then the dead letter is deleted. A message that was not changed is not sent. For a queue that detects " +
			"duplicates it needs another messageId.\n\nThe two steps are apart: if " +
			"the second one fails, the command says so, and the dead letter is there still.",
		Example: "  busbar dlq edit orders 4711\n  EDITOR='sed -i s/USD/EUR/' busbar dlq edit orders 4711",
	}
	addOpsFlag(c, &ops)
	c.Flags().StringVar(&to, "to", "", "queue or topic to send it to, instead of its own queue")
	c.Flags().BoolVar(&keep, "keep", false, "leave the dead letter where it is")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := exactly(2)(c, args); err != nil {
			return err
		}
		number, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || number < 1 {
			return exit.Usagef("%q is no sequence number; busbar dlq list %s prints them", args[1], args[0])
		}
		i, err := inspect(f, &ops, args[:1], true)
		if err != nil {
			return err
		}
		e := &deadEdit{c: c, f: f, i: i, number: number, to: to, keep: keep}
		if e.to == "" {
			e.to = strings.TrimSuffix(i.path, "/$DeadLetterQueue")
			if _, _, isSubscription := entities.SplitSubscription(e.to); isSubscription {
				return exit.Usagef("messages cannot be sent to a subscription: name a queue or topic by --to")
			}
		}
		return e.run()
	}
	return c
}

// deadEdit is one dead letter that is edited.
type deadEdit struct {
	c      *cobra.Command
	f      *dial.Flags
	i      *inspector
	number int64
	to     string
	keep   bool
}

func (e *deadEdit) run() error {
	before, err := e.read()
	if err != nil {
		return err
	}
	after, file, err := e.edit(before)
	if err != nil {
		return err
	}
	if bytes.Equal(bytes.TrimSpace(before), bytes.TrimSpace(after)) {
		fmt.Fprintln(e.c.ErrOrStderr(), "nothing was changed, so nothing is sent")
		return os.Remove(file)
	}
	if err = e.distinct(before, after); err == nil {
		err = e.send(after)
	}
	if err != nil {
		return exit.With(exit.Code(err), fmt.Errorf("%w; nothing was sent, and what you wrote is in %s", err, file))
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	text := fmt.Sprintf("sent dead letter %d to %s", e.number, e.to)
	if !e.keep {
		var answer json.RawMessage
		values := url.Values{"number": {strconv.FormatInt(e.number, 10)}}
		if err := e.i.call(e.c.Context(), http.MethodPost, "delete", values, nil, &answer); err != nil {
			return exit.With(exit.Code(err), fmt.Errorf("%s; the dead letter is there still: %w", text, err))
		}
		text += " and deleted it"
	}
	return dial.PrintDone(e.c.OutOrStdout(), e.f, map[string]any{"sent": 1, "queue": e.to, "deleted": !e.keep}, text)
}

// read returns the dead letter as people edit it: without what the broker says of it, and why it died.
func (e *deadEdit) read() ([]byte, error) {
	w, r, done, err := openManagement(e.c.Context(), e.i.t, e.f.Timeout, e.i.path)
	if err != nil {
		return nil, err
	}
	defer done()
	ask := peekRequest{from: e.number, count: 1}
	page, _, err := ask.send(e.c.Context(), w, r)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 || page[0].number != e.number {
		return nil, exit.With(exit.NotFound, fmt.Errorf("%s has no message %d", e.i.path, e.number))
	}
	m, err := lines.FromBroker(page[0].payload)
	if err != nil {
		return nil, err
	}
	line, err := m.Fresh().Line()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, line, "", "  "); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}

// edit has a person change a text. The file stays, for the case that the text is not good.
func (e *deadEdit) edit(before []byte) (after []byte, name string, err error) {
	editor := "vi"
	for _, variable := range []string{"VISUAL", "EDITOR"} {
		if text := os.Getenv(variable); text != "" {
			editor = text
			break
		}
	}
	file, err := os.CreateTemp("", "busbar-*.json") // which only its owner may read
	if err != nil {
		return nil, "", err
	}
	name = file.Name()
	_, err = file.Write(before)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, name, errors.Join(err, os.Remove(name))
	}
	run := exec.CommandContext(e.c.Context(), "sh", "-c", editor+` "$1"`, "sh", name)
	run.Stdin, run.Stdout, run.Stderr = e.c.InOrStdin(), e.c.ErrOrStderr(), e.c.ErrOrStderr()
	if err := run.Run(); err != nil {
		return nil, name, errors.Join(exit.Usagef("the editor %s: %v; set VISUAL or EDITOR", editor, err), os.Remove(name))
	}
	after, err = os.ReadFile(name)
	return after, name, err
}

// distinct refuses a message that its destination would drop as a duplicate of what the dead letter was (S-189). The dead
// letter would be deleted behind it.
func (e *deadEdit) distinct(before, after []byte) error {
	if e.keep {
		return nil
	}
	var ids [2]any
	for i, text := range [][]byte{before, after} {
		m, err := lines.Parse(text)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		if m.Properties != nil {
			ids[i] = m.Properties.MessageID
		}
	}
	if ids[1] == nil || fmt.Sprint(ids[0]) != fmt.Sprint(ids[1]) {
		return nil
	}
	d, err := entities.Get(e.c.Context(), dial.NewManagement(e.i.t, e.f.Timeout), e.to)
	if err != nil || d == nil || d.Property("RequiresDuplicateDetection") != "true" {
		return err
	}
	return exit.With(exit.Conflict, fmt.Errorf("%s detects duplicates and would drop a message with the id of the dead letter: "+
		"give it another messageId", e.to))
}

// send checks the text and sends the message.
func (e *deadEdit) send(text []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return exit.With(exit.Usage, err)
	}
	w, err := dial.Connect(e.c.Context(), e.i.t, e.to, e.f.Timeout)
	if err != nil {
		return err
	}
	defer w.Close()
	m := &importer{flags: &importFlags{fromLine: 1}, now: time.Now(), w: w}
	if m.out, err = openSender(e.c.Context(), w, e.to); err != nil {
		return err
	}
	m.batch = batchLimit(m.out)
	if err := m.submit(e.c.Context(), 1, line.Bytes()); err != nil {
		return err
	}
	return m.settle(e.c.Context(), 0)
}
