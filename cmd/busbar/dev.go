package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/process"
)

// entitiesBeside is the file of entities of the official emulator. A development node reads it from the working directory.
const entitiesBeside = "Config.json"

func newDevCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run one node for development on this machine",
		Long: "Run one node for development on this machine. The command is `serve --dev` with a data directory of the user, or of\n" +
			"nothing with --ephemeral. The entities of ./" + entitiesBeside + " are made if there is such a file and --entities is not given.",
		Args: cobra.NoArgs,
	}
	file, given := addSettings(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := forDevelopment(given, os.LookupEnv, os.Stat); err != nil {
			return exit.With(exit.Usage, err)
		}
		return runNode(cmd, *file, given, nil)
	}
	return c
}

// notGiven returns what reports whether neither a flag nor a variable has a setting.
func notGiven(given map[string][]string, getenv func(string) (string, bool)) func(name string) bool {
	return func(name string) bool {
		_, inEnvironment := getenv(environmentName(name))
		return !inEnvironment && len(given[name]) == 0
	}
}

// forDevelopment adds to the flags what `busbar dev` has besides.
func forDevelopment(given map[string][]string, getenv func(string) (string, bool),
	stat func(string) (fs.FileInfo, error),
) error {
	given["dev"] = []string{"true"}
	missing := notGiven(given, getenv)
	if missing("data-dir") && missing("ephemeral") {
		dir, err := devDataDir(getenv)
		if err != nil {
			return err
		}
		given["data-dir"] = []string{dir}
	}
	if missing("entities") {
		if _, err := stat(entitiesBeside); err == nil {
			given["entities"] = []string{entitiesBeside}
		}
	}
	return nil
}

// wantsDev finds out about --dev first, because it changes the defaults of the rest.
func wantsDev(file string, given map[string][]string, getenv func(string) (string, bool)) (bool, error) {
	var c Config
	if file != "" {
		if err := c.readFile(file); err != nil {
			return false, err
		}
	}
	if v, ok := getenv("BUSBAR_DEV"); ok {
		c.Dev, _ = strconv.ParseBool(v) // complained about by load
	}
	if v := given["dev"]; len(v) > 0 {
		c.Dev, _ = strconv.ParseBool(v[len(v)-1])
	}
	return c.Dev, nil
}

// devDataDir is where the development node of a user keeps its data.
func devDataDir(getenv func(string) (string, bool)) (string, error) {
	if dir, ok := getenv("XDG_DATA_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "busbar", "dev"), nil
	}
	home, ok := getenv("HOME")
	if !ok || !filepath.IsAbs(home) {
		return "", errors.New("HOME is not set, so there is no place for data: pass --data-dir DIR, or --ephemeral")
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "busbar", "dev"), nil
	}
	return filepath.Join(home, ".local", "share", "busbar", "dev"), nil
}

// runNode runs a node until a signal ends it. The function served, unless it is nil, is called when the node serves.
func runNode(cmd *cobra.Command, file string, given map[string][]string, served func(context.Context, *node)) error {
	cfg, err := load(file, given, os.LookupEnv)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, lifeSignals()...)
	defer signal.Stop(signals)
	if cfg.StopWithStdin {
		go signalEnd(cmd.InOrStdin(), signals)
	}
	if !cfg.Ephemeral { // such a node is to be small
		defer process.KeepHeapFloor()() // first of all: memory used before would have to be cleared
	}
	defer process.AdaptProcessors()()
	return serve(cmd.Context(), cfg, cmd.OutOrStdout(), signals, served)
}
