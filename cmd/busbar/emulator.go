package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const (
	// emulatorEntities is where the container of the official emulator has its file of entities.
	emulatorEntities = "/ServiceBus_Emulator/ConfigFiles/Config.json"
	// emulatorUp is the line that tools wait for in the output of that container.
	emulatorUp = "Emulator Service is Successfully Up!"
)

// emulatorNeedless are variables that the official emulator needs for its database and its license.
var emulatorNeedless = []string{"SQL_SERVER", "MSSQL_SA_PASSWORD", "ACCEPT_EULA", "SQL_WAIT_INTERVAL"}

func newEmulatorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "emulator",
		Short: "Run one node in the place of the official emulator's container",
		Long: "Run one node in the place of the official emulator's container. The command is `busbar dev` on all addresses: AMQP at\n" +
			"5672, health and management at 5300 or EMULATOR_HTTP_PORT, and no TLS unless --tls-listen is given. The node keeps\n" +
			"nothing unless --data-dir is given. The entities of " + emulatorEntities + "\n" +
			"are made, or those of the file that the variable CONFIG_PATH names, if that file is not there. When they are there, the\n" +
			"command prints \"" + emulatorUp + "\".",
		Args: cobra.NoArgs,
	}
	file, given := addSettings(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := forEmulator(given, os.LookupEnv, os.Stat); err != nil {
			return exit.With(exit.Usage, err)
		}
		return runNode(cmd, *file, given, emulatorServes(cmd.OutOrStdout()))
	}
	return c
}

// forEmulator adds to the flags what `busbar emulator` has besides. A flag or a variable of the same setting wins.
func forEmulator(given map[string][]string, getenv func(string) (string, bool), stat func(string) (fs.FileInfo, error)) error {
	given["dev"] = []string{"true"}
	missing := notGiven(given, getenv)
	ops := ":5300"
	if port, ok := getenv("EMULATOR_HTTP_PORT"); ok && port != "" {
		ops = ":" + port
	}
	for name, value := range map[string]string{"amqp-listen": ":5672", "tls-listen": "", "ops-listen": ops} {
		if missing(name) {
			given[name] = []string{value}
		}
	}
	if missing("data-dir") && missing("ephemeral") {
		given["ephemeral"] = []string{"true"}
	}
	if !missing("entities") {
		return nil
	}
	if _, err := stat(emulatorEntities); err == nil {
		given["entities"] = []string{emulatorEntities}
	} else if path, ok := getenv("CONFIG_PATH"); ok && path != "" {
		if _, err := stat(path); err != nil {
			return fmt.Errorf("the file of entities that CONFIG_PATH names: %w", err)
		}
		given["entities"] = []string{path}
	}
	return nil
}

// emulatorServes returns what prints the line that tools wait for, when the node and its entities are there.
func emulatorServes(out io.Writer) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		var needless []string
		for _, name := range emulatorNeedless {
			if _, set := os.LookupEnv(name); set {
				needless = append(needless, name)
			}
		}
		if len(needless) > 0 {
			n.log.Info("variables of the official emulator are set and not needed: this one has no database and no license to accept",
				"variables", strings.Join(needless, ", "))
		}
		for (&status{n}).Ready(ctx) != nil {
			if !sleep(ctx, 10*time.Millisecond, nil) {
				return
			}
		}
		fmt.Fprintln(out, emulatorUp)
	}
}
