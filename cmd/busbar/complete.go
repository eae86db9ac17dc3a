package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
)

// completeLimit bounds the wait for names: who has pressed the tabulator waits for no slow broker.
const completeLimit = 1500 * time.Millisecond

// completer suggests words for an argument; args are those before it.
type completer func(f *dial.Flags, ops string, args []string) []string

// completeNames has a shell complete names of entities, nodes, contexts and states, and file names only where files are
// wanted. The usage of a command says what its arguments are.
func completeNames(c *cobra.Command) {
	for _, below := range c.Commands() {
		completeNames(below)
	}
	if words := strings.Fields(c.Use); c.ValidArgsFunction == nil && !c.HasSubCommands() {
		c.ValidArgsFunction = completeArguments(words[1:])
	}
	each := func(flag *pflag.Flag) {
		if _, has := c.GetFlagCompletionFunc(flag.Name); has || flag.Value.Type() == "bool" || wantsFile(flag.Name) {
			return
		}
		_ = c.RegisterFlagCompletionFunc(flag.Name, completeFlag(flag.Name)) // the flag is there
	}
	c.LocalNonPersistentFlags().VisitAll(each)
	c.PersistentFlags().VisitAll(each)
}

// wantsFile reports whether the value of a flag is a file or a directory.
func wantsFile(flag string) bool {
	return strings.Contains(flag, "file") || strings.Contains(flag, "dir") || slices.Contains([]string{"config", "identity", "entities",
		"tls-cert", "tls-key", "tls-ca", "dump"}, flag)
}

// completers are those of arguments, by what the usage of a command calls them.
var completers = map[string]completer{
	"QUEUE": receivable, "NAME": receivable, "SOURCE": receivable, "DESTINATION": sendable, "ENTITY": anyEntity, "TOPIC": topics,
	"SUBSCRIPTION": subscriptions, "NODE": nodes, "CONTEXT": contexts, "PARTITION": partitions,
}

func completeArguments(words []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		word := strings.Trim(words[len(args)], "[].")
		switch word {
		case "FILE", "PLACE", "BACKUP":
			return nil, cobra.ShellCompDirectiveDefault
		case "NAME":
			return suggest(c, nameOf(c), args)
		}
		return suggest(c, completers[word], args)
	}
}

// nameOf is what NAME means: it depends on the noun before the verb. A new entity has a name that nobody knows.
func nameOf(c *cobra.Command) completer {
	switch {
	case c.Name() == "create" || c.Name() == "add" || c.HasParent() && c.Parent().Name() == "rule":
		return nil
	case c.HasParent() && c.Parent().Name() == "topic":
		return topics
	case c.HasParent() && c.Parent().Name() == "subscription":
		return subscriptions
	}
	return receivable
}

func completeFlag(name string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch name {
		case "context":
			return suggest(c, contexts, args)
		case "to", "forward-to", "forward-dead-letters-to":
			return suggest(c, sendable, args)
		case "entity", "queue":
			return suggest(c, anyEntity, args)
		case "node":
			return suggest(c, nodes, args)
		case "state":
			return []string{"active", "deferred", "scheduled"}, cobra.ShellCompDirectiveNoFileComp
		case "status":
			return []string{"Active", "Disabled", "SendDisabled", "ReceiveDisabled"}, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// suggest asks a completer with the flags of the command line. An error has no place in a completion.
func suggest(c *cobra.Command, ask completer, args []string) ([]string, cobra.ShellCompDirective) {
	if ask == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	text := func(name string) string {
		if flag := c.Flag(name); flag != nil {
			return flag.Value.String()
		}
		return ""
	}
	f := &dial.Flags{Connection: text("connection-string"), Context: text("context"), CAFile: text("ca-file"), Output: "table"}
	return ask(f, text("ops"), args), cobra.ShellCompDirectiveNoFileComp
}

// paths lists entities of some kinds, as far as the broker tells of them in time.
func paths(f *dial.Flags, kinds ...string) []string {
	t, err := f.Target()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
	defer cancel()
	m := dial.NewManagement(t, completeLimit)
	var names []string
	list := func(kind, topic string) {
		all, err := entities.List(ctx, m, kind, topic)
		if err != nil {
			return
		}
		for _, d := range all {
			names = append(names, d.Path)
		}
	}
	for _, kind := range kinds {
		if kind != entities.Subscription {
			list(kind, "")
			continue
		}
		topics, err := entities.List(ctx, m, entities.Topic, "")
		if err != nil {
			return names
		}
		for _, t := range topics {
			list(entities.Subscription, t.Path)
		}
	}
	return names
}

func receivable(f *dial.Flags, _ string, _ []string) []string {
	return paths(f, entities.Queue, entities.Subscription)
}

func sendable(f *dial.Flags, _ string, _ []string) []string {
	return paths(f, entities.Queue, entities.Topic)
}

func anyEntity(f *dial.Flags, _ string, _ []string) []string {
	return paths(f, entities.Queue, entities.Topic, entities.Subscription)
}

func topics(f *dial.Flags, _ string, _ []string) []string { return paths(f, entities.Topic) }

// subscriptions are the names below the topic that stands before, or whole paths.
func subscriptions(f *dial.Flags, _ string, args []string) (names []string) {
	for _, path := range paths(f, entities.Subscription) {
		topic, name, _ := entities.SplitSubscription(path)
		switch {
		case len(args) == 0:
			names = append(names, path)
		case strings.EqualFold(topic, args[len(args)-1]):
			names = append(names, name)
		}
	}
	return names
}

func nodes(f *dial.Flags, ops string, _ []string) []string {
	names, _ := client.ClusterNames(f, ops, completeLimit)
	return names
}

func partitions(f *dial.Flags, ops string, _ []string) []string {
	_, numbers := client.ClusterNames(f, ops, completeLimit)
	return numbers
}

func contexts(*dial.Flags, string, []string) []string {
	all, err := dial.ReadContexts()
	if err != nil {
		return nil
	}
	return all.Names()
}
