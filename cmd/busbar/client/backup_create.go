package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/backup"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

type createFlags struct {
	*backupFlags
	name            string
	recipients      []string
	recipientsFiles []string
	phrase          string // file with the passphrase
	seal            *backup.Seal
	id              backup.ID
}

func backupCreateCommand(f *backupFlags) *cobra.Command {
	b := &createFlags{backupFlags: f}
	c := &cobra.Command{
		Use: "create PLACE", Args: exactly(1),
		Short: "Back up all entities and messages of a cluster",
		Long: "Writes a new backup into PLACE, which is a directory, s3://BUCKET/PREFIX, or - for the standard output.\n\n" +
			"Clients go on meanwhile. Messages that are forwarded wait for a moment, so that all partitions fit together.\n" +
			"A backup that fails or is interrupted is deleted again. The keys of entities are in it: encrypt it.",
		Example: "  busbar backup create /backups --recipient age1...\n" +
			"  busbar backup create s3://backups/busbar --s3-endpoint https://s3.example.net --passphrase-file phrase\n" +
			"  busbar backup create - --recipient age1... | ssh vault 'cat > busbar.backup'",
		RunE: func(c *cobra.Command, args []string) error { return b.command(c, args[0]) },
	}
	f.addOps(c)
	flags := c.Flags()
	flags.StringVar(&b.name, "name", "", "name of the backup in PLACE (default: the time, and the beginning of its id)")
	flags.StringArrayVar(&b.recipients, "recipient", nil, "encrypt to this recipient of age; may be repeated")
	flags.StringArrayVar(&b.recipientsFiles, "recipients-file", nil, "encrypt to the recipients in this file; may be repeated")
	flags.StringVar(&b.phrase, "passphrase-file", "", "encrypt by the passphrase in the first line of this file")
	return c
}

// createdBackup is what busbar backup create prints.
type createdBackup struct {
	Backup    string    `json:"backup"`
	ID        backup.ID `json:"id"`
	Created   time.Time `json:"created"`
	Cluster   string    `json:"cluster"`
	Files     int       `json:"files"`
	Bytes     uint64    `json:"bytes"`
	Encrypted bool      `json:"encrypted"`
}

func (b *createFlags) command(c *cobra.Command, place string) (err error) {
	if err := b.CheckOutput(); err != nil {
		return err
	}
	if b.seal, err = backup.NewSeal(b.recipients, b.recipientsFiles, b.phrase); err != nil {
		return exit.With(exit.Usage, err)
	}
	if place == pipe && b.name != "" {
		return exit.Usagef("a backup in a pipe has no name")
	}
	if place == pipe && dial.IsTerminal(c.OutOrStdout()) {
		return exit.Usagef("a backup is not written to a terminal: name a place, or send the output somewhere")
	}
	if b.name != "" && !backup.GoodName(b.name) {
		return exit.Usagef("--name must be letters, digits, dots, dashes and underscores, at most 128 of them")
	}
	if b.seal == nil {
		fmt.Fprintln(c.ErrOrStderr(), "WARNING: this backup is not encrypted. It holds all messages and the keys of entities: "+
			"give --recipient or --passphrase-file.")
	}
	if _, err := rand.Read(b.id[:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	where, m, err := b.run(ctx, c, place)
	if err != nil {
		return backupFailure(err)
	}
	out := c.OutOrStdout()
	if place == pipe {
		out = c.ErrOrStderr()
	}
	done := createdBackup{where, m.ID, m.Created, m.Cluster, len(m.Files), m.Bytes(), b.seal != nil}
	if b.Output == "json" {
		return dial.PrintJSON(out, done)
	}
	_, err = fmt.Fprintf(out, "made %s: %s of %s\n", where, counted(done.Files, "file"), sizeText(done.Bytes))
	return err
}

// run makes the backup, and returns its place.
func (b *createFlags) run(ctx context.Context, c *cobra.Command, place string) (where string, m *backup.Manifest, err error) {
	var s backup.Store
	if place != pipe {
		if s, err = b.store(place); err != nil {
			return "", nil, err
		}
	}
	started, err := b.startBackup(ctx)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		// The node drops the images by itself later, so a failure takes nothing from the backup.
		if e := b.dropBackup(context.WithoutCancel(ctx), started.ID); e != nil {
			fmt.Fprintf(c.ErrOrStderr(), "the cluster keeps its images for some minutes: %v\n", e)
		}
	}()
	about := backup.Manifest{ID: b.id, Created: started.Time, Cluster: started.Cluster, Version: started.Version}
	var maker *backup.Maker
	if place == pipe {
		where = "a backup in a pipe"
		maker, err = backup.MakeStream(c.OutOrStdout(), b.seal, about)
	} else {
		name := firstOf(b.name, backup.Name(started.Time, b.id))
		where = s.Where(name)
		maker, err = backup.Make(ctx, s, name, b.seal, about)
	}
	if err != nil {
		return "", nil, err
	}
	if m, err = b.fill(ctx, c, maker, started); err != nil {
		return "", nil, errors.Join(err, maker.Discard(ctx))
	}
	return where, m, nil
}

// fill copies the catalog and the images.
func (b *createFlags) fill(ctx context.Context, c *cobra.Command, maker *backup.Maker, started *startedBackup) (*backup.Manifest, error) {
	catalog, err := b.catalogOf(ctx, started.ID)
	if err != nil {
		return nil, err
	}
	if err := maker.Add(ctx, backup.File{Name: backup.CatalogName}, bytes.NewReader(catalog)); err != nil {
		return nil, err
	}
	for _, p := range started.Partitions {
		name, wall := backup.PartitionName(p.ID), p.Wall
		meter := newMeter(c.ErrOrStderr(), name)
		i := b.image(ctx, started.ID, p.ID, meter.show)
		err := maker.Add(ctx, backup.File{Name: name, Index: p.Index, Wall: &wall}, i)
		i.Close()
		meter.end()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return maker.Finish(ctx)
}
