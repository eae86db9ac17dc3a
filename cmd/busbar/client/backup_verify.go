package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/backup"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/storage"
)

type verifyFlags struct {
	*backupFlags
	sums bool
}

func backupVerifyCommand(f *backupFlags) *cobra.Command {
	v := &verifyFlags{backupFlags: f}
	c := &cobra.Command{
		Use: "verify BACKUP", Args: exactly(1),
		Short: "Read a whole backup, and check that a cluster could be restored from it",
		Long: "Reads every byte of a backup and compares all checksums. It loads the image of each partition into a state\n" +
			"machine, checks its invariants, and looks for the body of every message. That takes the memory of one partition\n" +
			"at a time. BACKUP is PLACE/NAME, or - for the standard input. The exit code is 1 if something is wrong.",
		Example: "  busbar backup verify /backups/2026-11-24T18-00-00Z-1a2b3c4d\n" +
			"  busbar backup verify - --identity key.txt < busbar.backup",
		RunE: func(c *cobra.Command, args []string) error { return v.command(c, args[0]) },
	}
	f.addKeys(c)
	c.Flags().BoolVar(&v.sums, "checksums", false, "compare checksums only, and do not load the images")
	return c
}

// verifiedBackup is what busbar backup verify prints.
type verifiedBackup struct {
	Backup   string         `json:"backup"`
	Whole    bool           `json:"whole"`
	Created  *time.Time     `json:"created,omitempty"`
	Cluster  string         `json:"cluster,omitempty"`
	Version  string         `json:"version,omitempty"`
	Files    []verifiedFile `json:"files"`
	Problems []string       `json:"problems,omitempty"`
}

type verifiedFile struct {
	Name    string                 `json:"name"`
	Bytes   uint64                 `json:"bytes"`  // that were read and verified
	Chunks  uint64                 `json:"chunks"` // that were read and verified
	Image   *partition.ImageReport `json:"image,omitempty"`
	Problem string                 `json:"problem,omitempty"`
}

func (v *verifyFlags) command(c *cobra.Command, place string) (err error) {
	if err := v.CheckOutput(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	from, set, err := v.source(c, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	out := &verifiedBackup{Backup: place, Files: []verifiedFile{}}
	if set != nil {
		err = v.set(ctx, c, set, out)
	} else {
		err = v.stream(ctx, c, from, out)
	}
	if err != nil {
		return backupFailure(err)
	}
	if m := from.Manifest(); m != nil {
		out.Created, out.Cluster, out.Version = &m.Created, m.Cluster, m.Version
	}
	out.Whole = len(out.Problems) == 0
	if err := v.print(c, out); err != nil {
		return err
	}
	if !out.Whole {
		return fmt.Errorf("the backup is damaged: %s", counted(len(out.Problems), "problem"))
	}
	return nil
}

// set goes on behind a file that is damaged: an operator wants to know of all.
func (v *verifyFlags) set(ctx context.Context, c *cobra.Command, set *backup.Set, out *verifiedBackup) error {
	b := newBar(c.ErrOrStderr(), set.Manifest().Bytes())
	defer b.end()
	done := uint64(0)
	for _, f := range set.Manifest().Files {
		in, err := set.Again(ctx, f.Name)
		if err == nil {
			err = v.file(ctx, in, f.Name, out, func(n int) { done += uint64(n); b.show(done) })
		} else if backup.IsDamage(err) {
			out.add(verifiedFile{Name: f.Name}, err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	foreign, err := set.Foreign(ctx)
	for _, name := range foreign {
		out.Problems = append(out.Problems, fmt.Sprintf("%q is no file of this backup", name))
	}
	return err
}

// stream ends at the first damage: where the next file begins is not known then.
func (v *verifyFlags) stream(ctx context.Context, c *cobra.Command, from backupSource, out *verifiedBackup) error {
	b := newMeter(c.ErrOrStderr(), "read")
	defer b.end()
	done := uint64(0)
	for {
		in, err := from.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case backup.IsDamage(err):
			out.Problems = append(out.Problems, err.Error())
			return nil
		case err != nil:
			return err
		}
		before := len(out.Problems)
		if err := v.file(ctx, in, in.Name(), out, func(n int) { done += uint64(n); b.show(done) }); err != nil {
			return err
		}
		if len(out.Problems) > before && !in.Whole() {
			return nil
		}
	}
}

// file verifies one file. It returns an error that is not about the backup.
func (v *verifyFlags) file(ctx context.Context, in *backup.FileReader, name string, out *verifiedBackup, moved func(int)) error {
	r := &counting{ctx: ctx, r: in, moved: moved}
	var f verifiedFile
	var content error
	switch {
	case v.sums:
	case name == backup.CatalogName:
		content = catalogIsJSON(r)
	default:
		report, err := partition.CheckImage(r, storage.EachBody)
		if content = err; err == nil {
			f.Image = &report
			if report.Partition != fsm.PartitionID(in.Partition()) {
				content = fmt.Errorf("it holds the image of partition %d", report.Partition)
			}
		}
	}
	_, err := io.Copy(io.Discard, r)
	if err != nil && !backup.IsDamage(err) {
		return err
	}
	if err == nil && content != nil {
		err = fmt.Errorf("%s: %w", name, content)
	}
	extent := in.Extent()
	f.Name, f.Bytes, f.Chunks = name, extent.Bytes, extent.Chunks
	out.add(f, err)
	return nil
}

func (b *verifiedBackup) add(f verifiedFile, err error) {
	if err != nil {
		f.Problem = err.Error()
		b.Problems = append(b.Problems, f.Problem)
	}
	b.Files = append(b.Files, f)
}

func catalogIsJSON(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxCatalogBytes+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxCatalogBytes:
		return fmt.Errorf("it has more than %d bytes", maxCatalogBytes)
	case !json.Valid(text):
		return errors.New("it is no JSON")
	}
	return nil
}

func (v *verifyFlags) print(c *cobra.Command, out *verifiedBackup) error {
	if v.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), out)
	}
	rows := [][]string{{"FILE", "STATE", "BYTES", "ENTITIES", "MESSAGES", "SESSIONS", "BODIES"}}
	for _, f := range out.Files {
		row := []string{f.Name, "whole", strconv.FormatUint(f.Bytes, 10), "-", "-", "-", "-"}
		if f.Problem != "" {
			row[1] = "damaged"
		}
		if i := f.Image; i != nil {
			messages := i.Active + i.Locked + i.Scheduled + i.Deferred + i.DeadLetters + i.TransferDeadLetters + i.Leaving + i.InTransit
			for n, count := range []uint64{i.Entities, messages, i.Sessions, i.Bodies} {
				row[3+n] = strconv.FormatUint(count, 10)
			}
		}
		rows = append(rows, row)
	}
	for _, p := range out.Problems {
		fmt.Fprintln(c.ErrOrStderr(), printable(p))
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}
