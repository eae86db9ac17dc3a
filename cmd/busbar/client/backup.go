package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/backup"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// pipe is the place of a backup that goes through the standard output or comes from the standard input.
const pipe = "-"

// backupFlags are those of all commands about backups.
type backupFlags struct {
	opsFlags
	endpoint, region string   // of a store like S3
	identities       []string // files that open encrypted backups
	passphrase       string   // file
	pause            time.Duration
}

// NewBackupCommand makes busbar backup: backups are made, listed, verified and restored.
func NewBackupCommand() *cobra.Command { return newBackupCommand(streamPause) }

// newBackupCommand makes it with a pause before the first repetition of a stream that broke off.
func newBackupCommand(pause time.Duration) *cobra.Command {
	c := &cobra.Command{
		Use: "backup", Short: "Copy a cluster to a directory, a pipe or a store like S3, and bring it back",
		Long: "A backup holds all entities with their keys, and all their messages, states of sessions and ids of\n" +
			"duplicate detection, as of one point. It is taken while clients go on.\n\n" +
			"A place is a directory or s3://BUCKET/PREFIX, and one backup in it is PLACE/NAME. A dash is a pipe. Keys\n" +
			"for S3 come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from ~/.aws/credentials, or from the role of\n" +
			"the machine.\n\n" +
			"Exit codes: 1 something failed or the backup is damaged, 2 usage, 3 there is no such backup,\n" +
			"4 the name or the cluster is in use, 5 unauthorised.",
		Args: cobra.NoArgs, RunE: showHelp}
	f := &backupFlags{pause: pause}
	dial.AddOutputFlag(c, &f.Flags)
	flags := c.PersistentFlags()
	flags.StringVar(&f.CAFile, "ca-file", "", "further certificate authority to trust, PEM")
	flags.StringVar(&f.endpoint, "s3-endpoint", "", "URL of the S3 service (environment: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; "+
		"default: that of AWS)")
	flags.StringVar(&f.region, "s3-region", "", "region of the bucket (environment: AWS_REGION; default: what the service says)")
	c.AddCommand(backupCreateCommand(f), backupListCommand(f), backupVerifyCommand(f), backupRestoreCommand(f))
	return c
}

// addOps adds the flags of a command that asks a cluster.
func (f *backupFlags) addOps(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.base, "ops", "", opsUsage)
	f.AddBroker(c, managesUsage)
	flags.DurationVar(&f.Timeout, "timeout", 5*time.Minute, "limit of one request, and of a time in which no byte moves")
}

// addKeys adds the flags that open encrypted backups.
func (f *backupFlags) addKeys(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.identities, "identity", nil, "file with identities of age that open an encrypted backup; may be repeated")
	flags.StringVar(&f.passphrase, "passphrase-file", "", "file whose first line is the passphrase of an encrypted backup")
}

func (f *backupFlags) keys() (*backup.Keys, error) {
	keys, err := backup.NewKeys(f.identities, f.passphrase)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return keys, nil
}

// store opens the store of a place.
func (f *backupFlags) store(place string) (backup.Store, error) {
	o := backup.Options{Endpoint: firstOf(f.endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")),
		Region: firstOf(f.region, os.Getenv("AWS_REGION"))}
	if f.CAFile != "" {
		roots, err := dial.ReadRoots(f.CAFile)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		o.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	s, err := backup.OpenStore(place, o)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return s, nil
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// backupFailure finds the exit code of what a store returned.
func backupFailure(err error) error {
	var known *exit.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	code := exit.Failed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = exit.NotFound
	case errors.Is(err, fs.ErrExist):
		code = exit.Conflict
	case errors.Is(err, fs.ErrPermission), errors.Is(err, backup.ErrKeys):
		code = exit.Unauthorised
	}
	return exit.With(code, err)
}

// backupSource is a backup that is read file after file: of a store or of a pipe.
type backupSource interface {
	// Next returns the next file, or io.EOF when all files were what backup.json says.
	Next(context.Context) (*backup.FileReader, error)
	// Again opens a file from its beginning. A pipe returns errors.ErrUnsupported.
	Again(ctx context.Context, name string) (*backup.FileReader, error)
	// Manifest is backup.json, nil of a pipe before its end.
	Manifest() *backup.Manifest
	Close() error
}

// source opens a backup by its place. The set is nil if it comes through a pipe.
func (f *backupFlags) source(c *cobra.Command, place string) (backupSource, *backup.Set, error) {
	keys, err := f.keys()
	if err != nil {
		return nil, nil, err
	}
	if place == pipe {
		s, err := backup.OpenStream(c.InOrStdin(), keys)
		if err != nil {
			return nil, nil, backupFailure(err)
		}
		return s, nil, nil
	}
	in, name, err := backup.Split(place)
	if err != nil {
		return nil, nil, exit.With(exit.Usage, err)
	}
	s, err := f.store(in)
	if err != nil {
		return nil, nil, err
	}
	set, err := backup.Open(c.Context(), s, name, keys)
	if err != nil {
		return nil, nil, backupFailure(err)
	}
	return set, set, nil
}

// listedBackup is a line of busbar backup list.
type listedBackup struct {
	Name       string     `json:"name"`
	State      string     `json:"state"`
	Encrypted  bool       `json:"encrypted"`
	Created    *time.Time `json:"created,omitempty"`
	Cluster    string     `json:"cluster,omitempty"`
	Version    string     `json:"version,omitempty"`
	Partitions int        `json:"partitions"`
	Bytes      uint64     `json:"bytes"`
	Error      string     `json:"error,omitempty"`
}

func backupListCommand(f *backupFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "list PLACE", Args: exactly(1),
		Short: "List the backups of a place",
		Long: "Lists the backups of a place, and reads backup.json of each. A backup is unfinished if it has none: its making\n" +
			"goes on, or was cut off. What was cut off may be deleted. Nothing is verified; busbar backup verify does that.",
		Example: "  busbar backup list /backups\n  busbar backup list s3://backups/busbar --identity key.txt -o json",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			if args[0] == pipe {
				return exit.Usagef("a pipe has one backup: busbar backup verify - reads it")
			}
			keys, err := f.keys()
			if err != nil {
				return err
			}
			s, err := f.store(args[0])
			if err != nil {
				return err
			}
			all, err := backup.List(c.Context(), s, keys)
			if err != nil {
				return backupFailure(err)
			}
			return f.printList(c, all)
		},
	}
	f.addKeys(c)
	return c
}

func (f *backupFlags) printList(c *cobra.Command, all []backup.Listed) error {
	out := []listedBackup{}
	rows := [][]string{{"NAME", "STATE", "CREATED", "CLUSTER", "PARTITIONS", "BYTES", "ENCRYPTED"}}
	for _, l := range all {
		v := listedBackup{Name: l.Name, State: l.State, Encrypted: l.Sealed}
		row := []string{printable(l.Name), l.State, "-", "-", "-", "-", yesNo(l.Sealed)}
		if m := l.Manifest; m != nil {
			v.Created, v.Cluster, v.Version, v.Partitions, v.Bytes = &m.Created, m.Cluster, m.Version, len(m.Files)-1, m.Bytes()
			row = []string{printable(l.Name), l.State, m.Created.UTC().Format(time.RFC3339), orDash(printable(m.Cluster)),
				strconv.Itoa(v.Partitions), strconv.FormatUint(v.Bytes, 10), yesNo(l.Sealed)}
		}
		if l.Err != nil {
			v.Error = l.Err.Error()
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", printable(l.Name), printable(v.Error))
		}
		out, rows = append(out, v), append(rows, row)
	}
	if f.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), out)
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
