package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/backup"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

type restoreFlags struct {
	*backupFlags
	entity, as string
	dryRun     bool
	again      string // id of a restore that was interrupted
}

func backupRestoreCommand(f *backupFlags) *cobra.Command {
	r := &restoreFlags{backupFlags: f}
	c := &cobra.Command{
		Use: "restore BACKUP", Args: exactly(1),
		Short: "Bring the entities and messages of a backup into a cluster without entities",
		Long: "Makes the entities of a backup and brings their messages back. BACKUP is PLACE/NAME, or - for the standard input.\n\n" +
			"The cluster must have no entities, and at least as many partitions as a partitioned entity had. It may have another\n" +
			"number of nodes. With --entity one entity is restored into a cluster that has others. Entities are suspended until\n" +
			"all is there and its counters are compared. Checksums of a backup in a store are verified before anything is made.\n\n" +
			"An interrupted restore leaves suspended entities and says how to go on.",
		Example: "  busbar backup restore /backups/2026-11-24T18-00-00Z-1a2b3c4d --identity key.txt\n" +
			"  busbar backup restore /backups/nightly --entity orders --as orders-restored\n" +
			"  ssh vault 'cat busbar.backup' | busbar backup restore - --identity key.txt",
		RunE: func(c *cobra.Command, args []string) error { return r.command(c, args[0]) },
	}
	f.addOps(c)
	f.addKeys(c)
	flags := c.Flags()
	flags.StringVar(&r.entity, "entity", "", "restore this queue, or this topic with its subscriptions, and nothing else")
	flags.StringVar(&r.as, "as", "", "with --entity: the name of what is made")
	flags.BoolVar(&r.dryRun, "dry-run", false, "say what would be restored, and change nothing")
	flags.StringVar(&r.again, "continue", "", "go on with the restore of this id, at the node that began it")
	return c
}

// startedRestore is what a cluster says of a restore that has begun.
type startedRestore struct {
	ID         string   `json:"id"`
	Partitions []uint16 `json:"partitions"` // whose files it wants
	Entities   []string `json:"entities"`
}

func (r *restoreFlags) command(c *cobra.Command, place string) (err error) {
	if err := r.CheckOutput(); err != nil {
		return err
	}
	switch {
	case r.as != "" && r.entity == "":
		return exit.Usagef("--as goes with --entity")
	case r.again != "" && (r.dryRun || r.entity != ""):
		return exit.Usagef("--continue goes on with what was asked for: give neither --dry-run nor --entity")
	}
	from, set, err := r.source(c, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if set != nil && !r.dryRun {
		if err := r.checkSums(ctx, c, set); err != nil {
			return backupFailure(err)
		}
	}
	started, err := r.begin(ctx, from)
	if err != nil {
		if r.again == "" && !r.dryRun && exit.Code(backupFailure(err)) == exit.Failed {
			err = fmt.Errorf("%w\nIf the node ended meanwhile, the cluster may have suspended entities of this restore: resume and delete "+
				"them before you begin anew", err)
		}
		return backupFailure(err)
	}
	if r.dryRun {
		return r.print(c, map[string]any{"entities": started.Entities, "partitions": started.Partitions, "dryRun": true},
			[][]string{{"ENTITY"}}, started.Entities)
	}
	answer, err := r.run(ctx, c, from, started)
	if err != nil {
		return exit.With(exit.Code(backupFailure(err)), fmt.Errorf("%w\nThe entities stay suspended. Go on by --continue %s at the same node, "+
			"or resume and delete them: %s", err, started.ID, orDash(someOf(started.Entities))))
	}
	return r.printRestored(c, started, answer)
}

// checkSums reads all files before anything is made of them.
func (r *restoreFlags) checkSums(ctx context.Context, c *cobra.Command, set *backup.Set) error {
	b := newBar(c.ErrOrStderr(), set.Manifest().Bytes())
	defer b.end()
	done := uint64(0)
	for _, f := range set.Manifest().Files {
		in, err := set.Again(ctx, f.Name)
		if err == nil {
			_, err = io.Copy(io.Discard, &counting{ctx: ctx, r: in, moved: func(n int) { done += uint64(n); b.show(done) }})
		}
		if err != nil {
			return fmt.Errorf("nothing was restored: %w", err)
		}
	}
	return nil
}

// counting tells how many bytes a reader has read, remembers its error, and ends with the context.
type counting struct {
	ctx   context.Context
	r     io.Reader
	moved func(int)
	err   error
}

func (c *counting) Read(p []byte) (n int, err error) {
	if err = c.ctx.Err(); err == nil {
		n, err = c.r.Read(p)
		c.moved(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// begin has the cluster make the entities of the catalog, or finds a restore that was begun before.
func (r *restoreFlags) begin(ctx context.Context, from backupSource) (*startedRestore, error) {
	f, err := from.Next(ctx)
	if err != nil {
		return nil, err
	}
	if f.Name() != backup.CatalogName {
		return nil, fmt.Errorf("the backup begins with %s, and not with the catalog", f.Name())
	}
	catalog, err := io.ReadAll(io.LimitReader(f, maxCatalogBytes+1))
	if err != nil {
		return nil, err
	}
	if len(catalog) > maxCatalogBytes {
		return nil, fmt.Errorf("the catalog has more than %d bytes", maxCatalogBytes)
	}
	if r.again != "" {
		return &startedRestore{ID: r.again}, nil
	}
	values := url.Values{}
	for name, value := range map[string]string{"entity": r.entity, "as": r.as} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if r.dryRun {
		values.Set("dry-run", "true")
	}
	s := &startedRestore{}
	path := restoresPath
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	if err := r.patiently(ctx, isLater, func() error { return r.answered(ctx, http.MethodPost, path, catalog, s) }); err != nil {
		return nil, err
	}
	if s.ID == "" && !r.dryRun {
		return nil, fmt.Errorf("%s: the node names no restore", restoresPath)
	}
	return s, nil
}

// run sends the images that the cluster wants, and returns the answer to the last request.
func (r *restoreFlags) run(ctx context.Context, c *cobra.Command, from backupSource, s *startedRestore) (json.RawMessage, error) {
	sent := map[uint16]bool{}
	for {
		f, err := from.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if r.again == "" && !slices.Contains(s.Partitions, f.Partition()) {
			continue // a pipe reads over it, and verifies it
		}
		err = r.put(ctx, c, from, s.ID, f)
		if r.again != "" && exit.Code(err) == exit.Usage {
			continue // the restore does not want it. Its end is refused while it lacks one that it wants
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		sent[f.Partition()] = true
	}
	for _, p := range s.Partitions {
		if !sent[p] {
			return nil, fmt.Errorf("the backup has no image of partition %d, which the cluster wants", p)
		}
	}
	var answer json.RawMessage
	err := r.patiently(ctx, isLater, func() error {
		return r.answered(ctx, http.MethodPost, restoresPath+"/"+url.PathEscape(s.ID)+"/finish", []byte("{}"), &answer)
	})
	return answer, err
}

// put sends one image. It is repeated where the connection breaks and the backup can be read again.
func (r *restoreFlags) put(ctx context.Context, c *cobra.Command, from backupSource, id string, f *backup.FileReader) error {
	name := f.Name()
	again := func(err error) bool {
		var refused *refusedImage
		return !backup.IsDamage(err) && !errors.As(err, &refused) && !errors.Is(err, errors.ErrUnsupported) && exit.Code(err) == exit.Failed
	}
	return r.patiently(ctx, again, func() (err error) {
		if f == nil {
			if f, err = from.Again(ctx, name); err != nil {
				return err
			}
		}
		err = r.putOnce(ctx, c, id, f)
		f = nil
		if err == nil || !again(err) {
			return err
		}
		if _, once := from.(*backup.Stream); once {
			return fmt.Errorf("%w (%w)", err, errOnce)
		}
		return err
	})
}

// errOnce says that a pipe cannot be sent again.
var errOnce = fmt.Errorf("a pipe is read once: %w", errors.ErrUnsupported)

// refusedImage is what the cluster says of an image that it cannot restore.
type refusedImage struct{ reason string }

func (e *refusedImage) Error() string {
	return "the cluster cannot restore the image: " + printable(e.reason)
}

// restoreLine is a line of the answer to an image.
type restoreLine struct {
	Share    string `json:"share"` // name of the entity
	Restored uint64 `json:"restored"`
	Total    uint64 `json:"total"`
	Done     bool   `json:"done"`
	Error    string `json:"error"`
	Again    bool   `json:"retriable"` // the same image may be sent again
}

// maxRestoreLine bounds a line of an answer.
const maxRestoreLine = 1 << 16

// putOnce sends one image, and reads the progress of its restore meanwhile.
func (r *restoreFlags) putOnce(ctx context.Context, c *cobra.Command, id string, f *backup.FileReader) (err error) {
	asked, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(r.Timeout, func() { cancel(errQuiet) })
	defer quiet.Stop()
	body := &counting{ctx: asked, r: f, moved: func(int) { quiet.Reset(r.Timeout) }}
	defer func() {
		switch { // what the backup says goes before what its reader made of it
		case err != nil && body.err != nil && backup.IsDamage(body.err):
			err = body.err
		case err != nil && errors.Is(context.Cause(asked), errQuiet):
			err = fmt.Errorf("%w: %v", errQuiet, r.Timeout)
		}
	}()
	path := restoresPath + "/" + url.PathEscape(id) + "/partitions/" + strconv.Itoa(int(f.Partition()))
	res, err := r.managed(asked, http.MethodPut, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 1<<12), maxRestoreLine)
	p := newRestoreProgress(c.ErrOrStderr())
	defer p.b.end()
	for lines.Scan() {
		quiet.Reset(r.Timeout)
		var l restoreLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case l.Error != "" && l.Again:
			return errors.New(printable(l.Error))
		case l.Error != "":
			return &refusedImage{l.Error}
		case l.Done:
			return nil
		}
		p.show(l)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%s: the answer ended before the restore did", path)
}

// restoreProgress adds the shares of a partition up.
type restoreProgress struct {
	b      *bar
	shares map[string]restoreLine
}

func newRestoreProgress(w io.Writer) *restoreProgress {
	return &restoreProgress{newBar(w, 0), map[string]restoreLine{}}
}

func (p *restoreProgress) show(l restoreLine) {
	p.shares[l.Share] = l
	done := uint64(0)
	p.b.total = 0
	for s := range maps.Values(p.shares) {
		done, p.b.total = done+s.Restored, p.b.total+s.Total
	}
	p.b.show(done)
}

// print writes names in one column, or what JSON has.
func (r *restoreFlags) print(c *cobra.Command, v any, rows [][]string, names []string) error {
	if r.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), v)
	}
	for _, n := range names {
		rows = append(rows, []string{printable(n)})
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}

// printRestored writes the counters of each entity.
func (r *restoreFlags) printRestored(c *cobra.Command, s *startedRestore, answer json.RawMessage) error {
	var doc struct {
		Entities []map[string]any `json:"entities"`
	}
	in := json.NewDecoder(bytes.NewReader(answer))
	in.UseNumber()
	if err := in.Decode(&doc); err != nil {
		return fmt.Errorf("the answer to the restore: %w", err)
	}
	if r.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), map[string]any{"id": s.ID, "entities": doc.Entities})
	}
	counters := map[string]bool{}
	for _, e := range doc.Entities {
		for name, v := range e {
			if _, is := v.(json.Number); is {
				counters[name] = true
			}
		}
	}
	columns := slices.Sorted(maps.Keys(counters))
	head := []string{"ENTITY"}
	for _, name := range columns {
		head = append(head, strings.ToUpper(strings.ReplaceAll(name, "_", " ")))
	}
	rows := [][]string{head}
	for _, e := range doc.Entities {
		row := []string{printable(fmt.Sprint(e["name"]))}
		for _, name := range columns {
			row = append(row, orDash(fmt.Sprint(e[name])))
		}
		rows = append(rows, row)
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}
