package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/rest"
)

// entityPrefix is where the operations port shows the inside of entities.
const entityPrefix = "/api/entities/"

// inspector asks the operations port about the inside of an entity, with the token that the
// connection string gives.
type inspector struct {
	ops  *opsFlags
	t    *dial.Target
	path string // of the entity and its subqueue
	// stale asks for what the answering node has. handle is what was read, here or by an earlier command;
	// age is that of the oldest answer (S-305).
	stale  bool
	handle string
	age    time.Duration
}

// addOpsFlag adds the flag that reaches an operations port.
func addOpsFlag(c *cobra.Command, ops *opsFlags) {
	c.Flags().StringVar(&ops.base, "ops", "", opsUsage)
}

// inspect makes an inspector for the entity that the command line names.
func inspect(f *dial.Flags, ops *opsFlags, args []string, dead bool) (*inspector, error) {
	t, err := f.Target()
	if err != nil {
		return nil, err
	}
	name, rest, err := t.Queue(args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, exit.Usagef("one entity at a time, not %s as well", strings.Join(rest, " "))
	}
	if dead {
		name += "/$DeadLetterQueue"
	}
	ops.Timeout, ops.CAFile, ops.Connection, ops.Context = f.Timeout, f.CAFile, f.Connection, f.Context
	return &inspector{ops: ops, t: t, path: name}, nil
}

// call sends one request and decodes the answer.
func (i *inspector) call(ctx context.Context, method, view string, values url.Values, body io.Reader, into any) error {
	escaped := (&url.URL{Path: entityPrefix + i.path + "/" + view}).EscapedPath()
	if len(values) > 0 {
		escaped += "?" + values.Encode()
	}
	audience := i.path
	if values.Has("to") { // two entities are concerned
		audience = ""
	}
	answer, err := i.ops.ask(ctx, method, escaped, body, i.t.Token(audience, time.Now()))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s of %s: %w", view, i.path, err)
	}
	return nil
}

// list asks for page after page of a view until most entries have come, 0 for all, and calls each
// with every one. key is the name of the entries in the answer.
func (i *inspector) list(ctx context.Context, view, key string, values url.Values, most int,
	each func(json.RawMessage) error,
) error {
	const page = 100
	for left := most; ; {
		values.Set("max", strconv.Itoa(page))
		if most > 0 {
			values.Set("max", strconv.Itoa(min(left, page)))
		}
		if i.stale {
			values.Set("stale", "true")
			values.Set("atLeast", i.handle)
		}
		var answer map[string]json.RawMessage
		if err := i.call(ctx, http.MethodGet, view, values, nil, &answer); err != nil {
			return err
		}
		var entries []json.RawMessage
		var next string
		if err := json.Unmarshal(answer[key], &entries); err != nil {
			return fmt.Errorf("%s of %s: %w", view, i.path, err)
		}
		if err := json.Unmarshal(answer["next"], &next); err != nil {
			return fmt.Errorf("%s of %s: %w", view, i.path, err)
		}
		if err := i.read(answer["stale"]); err != nil {
			return fmt.Errorf("%s of %s: %w", view, i.path, err)
		}
		for _, e := range entries {
			if err := each(e); err != nil {
				return err
			}
			if left--; most > 0 && left <= 0 {
				return nil
			}
		}
		if next == "" {
			return nil
		}
		values.Set("cursor", next)
	}
}

// read notes what an answer that may be stale was read from.
func (i *inspector) read(raw json.RawMessage) error {
	if !i.stale {
		return nil
	}
	var v rest.StaleView
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("the node does not say what it read: %w", err)
	}
	i.handle, i.age = v.Handle, max(i.age, time.Duration(v.AgeMillis)*time.Millisecond)
	return nil
}

// listFlags are the flags of every command that lists something.
type listFlags struct {
	ops     opsFlags
	max     int
	dead    bool
	stale   bool
	atLeast string
	hint    func(*inspector) error // run calls it when the list is empty; nil for no call
}

func (l *listFlags) add(c *cobra.Command, what string) {
	addOpsFlag(c, &l.ops)
	c.Flags().IntVar(&l.max, "max", 100, what+" to print at most, 0 for all")
	c.Flags().BoolVar(&l.dead, "dlq", false, "look into the dead-letter queue")
}

// addStale adds the flags of a list that may be read from any replica.
func (l *listFlags) addStale(c *cobra.Command) {
	c.Flags().BoolVar(&l.stale, "stale", false, "what the node that is asked has, whoever leads; its age and a handle "+
		"are printed to standard error")
	c.Flags().StringVar(&l.atLeast, "at-least", "", "handle of an earlier --stale: nothing older than that")
}

// column is one column of a list: its heading and what it takes from an entry.
type column struct {
	head string
	from string
}

// run prints a list: JSON lines, or a table of the columns. It is printed at its end, because the
// widths of columns are known only then.
func (l *listFlags) run(c *cobra.Command, f *dial.Flags, args []string, view, key string, values url.Values, columns []column) error {
	if l.max < 0 {
		return exit.Usagef("--max must not be negative")
	}
	i, err := inspect(f, &l.ops, args, l.dead)
	if err != nil {
		return err
	}
	if i.stale, i.handle = l.stale, l.atLeast; l.atLeast != "" && !l.stale {
		return exit.Usagef("--at-least goes with --stale")
	}
	head := make([]string, len(columns))
	for n, col := range columns {
		head[n] = col.head
	}
	rows, none := [][]string{head}, true
	err = i.list(c.Context(), view, key, values, l.max, func(raw json.RawMessage) error {
		none = false
		if f.Output == "json" {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", raw)
			return err
		}
		row, err := rowOf(raw, columns)
		rows = append(rows, row)
		return err
	})
	if err == nil && i.stale {
		_, err = fmt.Fprintf(c.ErrOrStderr(), "age %v, handle %s\n", i.age, printable(i.handle))
	}
	if err == nil && none && l.hint != nil {
		err = l.hint(i)
	}
	if err != nil || f.Output == "json" {
		return err
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}

// rowOf takes the columns out of an entry, which is an object or, for a list of names, a text.
func rowOf(raw json.RawMessage, columns []column) ([]string, error) {
	var entry any
	in := json.NewDecoder(strings.NewReader(string(raw)))
	in.UseNumber() // sequence numbers of partitioned entities are larger than a double holds
	if err := in.Decode(&entry); err != nil {
		return nil, err
	}
	row := make([]string, len(columns))
	for n, col := range columns {
		v := entry
		if fields, ok := entry.(map[string]any); ok {
			v = fields[col.from]
		}
		if row[n] = "-"; v != nil && v != "" {
			row[n] = printable(fmt.Sprint(v))
		}
	}
	return row, nil
}

// named reports whether the user named an operations port.
func (f *opsFlags) named() bool {
	source, err := f.Source()
	return f.base != "" || err == nil && source.Ops != ""
}
