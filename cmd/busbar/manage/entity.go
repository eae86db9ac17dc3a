package manage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Dropped asks for the counters of what an entity dropped, by reason (S-169). It may be nil.
type Dropped func(ctx context.Context, path string) (map[string]uint64, error)

// verbs are the commands for one kind of entity.
type verbs struct {
	f       *dial.Flags
	kind    string
	dropped Dropped
}

// name is what the command line calls the kind.
func (v *verbs) name() string { return strings.ToLower(v.kind) }

// NewTopicCommand makes busbar topic.
func NewTopicCommand() *cobra.Command {
	c := &cobra.Command{Use: "topic", Short: "Create, list, show, change and delete topics", Args: cobra.NoArgs, RunE: needsVerb}
	AddCommands(c, dial.AddFlags(c), entities.Topic, nil)
	return c
}

// NewSubscriptionCommand makes busbar subscription.
func NewSubscriptionCommand() *cobra.Command {
	c := &cobra.Command{Use: "subscription", Aliases: []string{"sub"},
		Short: "Create, list, show, change and delete subscriptions of topics",
		Long: "A subscription is named by its topic and its name, or by its path: TOPIC/Subscriptions/NAME. Every command\n" +
			"that takes a queue to receive from takes this path, too: busbar receive, peek, queue purge, dlq redrive.",
		Args: cobra.NoArgs, RunE: needsVerb}
	AddCommands(c, dial.AddFlags(c), entities.Subscription, nil)
	return c
}

// needsVerb makes a command that only groups others say so and fail.
func needsVerb(c *cobra.Command, _ []string) error {
	_ = c.Help()
	return exit.Usagef("%s needs a subcommand", c.Name())
}

// AddCommands adds create, list, show, update and delete of one kind of entity to a command.
func AddCommands(c *cobra.Command, f *dial.Flags, kind string, dropped Dropped) {
	v := &verbs{f: f, kind: kind, dropped: dropped}
	c.AddCommand(v.create(), dial.AddWatch(v.list(), f), dial.AddWatch(v.show(), f), v.update(), v.delete())
}

// usage is what stands behind the verb: how the kind is named.
func (v *verbs) usage() string {
	if v.kind == entities.Subscription {
		return "TOPIC NAME"
	}
	return "NAME"
}

// path reads the arguments that name one entity.
func (v *verbs) path(c *cobra.Command, args []string) (string, error) {
	if v.kind != entities.Subscription {
		if len(args) != 1 || args[0] == "" {
			return "", exit.Usagef("%s takes the name of one %s, got %d arguments", c.CommandPath(), v.name(), len(args))
		}
		return args[0], nil
	}
	return subscriptionPath(c, args)
}

// subscriptionPath reads a topic and a name, or a path.
func subscriptionPath(c *cobra.Command, args []string) (string, error) {
	switch len(args) {
	case 1:
		if topic, name, ok := entities.SplitSubscription(args[0]); ok {
			return entities.SubscriptionPath(topic, name), nil
		}
	case 2:
		if args[0] != "" && args[1] != "" && !strings.Contains(args[1], "/") {
			return entities.SubscriptionPath(args[0], args[1]), nil
		}
	}
	return "", exit.Usagef("%s takes a topic and the name of a subscription, or TOPIC/Subscriptions/NAME", c.CommandPath())
}

// management connects to the broker of the flags.
func management(f *dial.Flags) (*dial.Management, error) {
	t, err := f.Target()
	if err != nil {
		return nil, err
	}
	return dial.NewManagement(t, f.Timeout), nil
}

// one reads the entity that the command line names. anyKind lets another kind pass.
func (v *verbs) one(c *cobra.Command, args []string, anyKind bool) (*dial.Management, *entities.Description, error) {
	path, err := v.path(c, args)
	if err != nil {
		return nil, nil, err
	}
	m, err := management(v.f)
	if err != nil {
		return nil, nil, err
	}
	d, err := entities.MustGet(c.Context(), m, path)
	if err == nil && d.Kind != v.kind && !anyKind {
		kind := strings.ToLower(d.Kind)
		err = exit.Usagef("%s is a %s; use busbar %s %s", d.Path, kind, kind, c.Name())
	}
	return m, d, err
}

func (v *verbs) create() *cobra.Command {
	c := &cobra.Command{Use: "create " + v.usage(), Short: "Create a " + v.name()}
	given := addProperties(c, v.kind, true)
	var rule *ruleFlags
	if v.kind == entities.Subscription {
		c.Long = "Without flags for a rule the subscription gets every message. With them it is made with that one rule, called\n" +
			"$Default unless --rule names it; busbar rule create adds others."
		rule = addRuleFlags(c)
		c.Flags().StringVar(&rule.rule.Name, "rule", "$Default", "name of the first rule")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		path, err := v.path(c, args)
		if err != nil {
			return err
		}
		m, err := management(v.f)
		if err != nil {
			return err
		}
		set, err := given.set(c, true)
		if err != nil {
			return err
		}
		var first *entities.Rule
		if rule != nil && rule.given(c) {
			if first, err = rule.read(c); err != nil {
				return err
			}
		}
		d, err := entities.Create(c.Context(), m, v.kind, path, set, first)
		if err != nil {
			return err
		}
		for _, p := range set {
			if strings.HasPrefix(p.Name, "Forward") {
				entities.WarnOfCircle(c.Context(), m, path, func(text string) { fmt.Fprintln(c.ErrOrStderr(), "warning:", text) })
				break
			}
		}
		return printOne(c.OutOrStdout(), v.f, d, nil)
	}
	return c
}

func (v *verbs) list() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List all " + v.name() + "s with their counts"}
	if v.kind == entities.Subscription {
		c.Use, c.Short = "list [TOPIC]", "List the subscriptions of a topic, or of all topics, with their counts"
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 1 || (len(args) > 0 && v.kind != entities.Subscription) {
			return exit.Usagef("%s takes no argument %q", c.CommandPath(), args[len(args)-1])
		}
		m, err := management(v.f)
		if err != nil {
			return err
		}
		topic := ""
		if len(args) > 0 {
			topic = args[0]
		}
		all, err := v.all(c.Context(), m, topic)
		if err != nil {
			return err
		}
		return printAll(c.OutOrStdout(), v.f, v.kind, all)
	}
	return c
}

// all reads the entities of the kind; of subscriptions those of one topic, or of all.
func (v *verbs) all(ctx context.Context, m *dial.Management, topic string) ([]*entities.Description, error) {
	if v.kind != entities.Subscription || topic != "" {
		return entities.List(ctx, m, v.kind, topic)
	}
	topics, err := entities.List(ctx, m, entities.Topic, "")
	if err != nil {
		return nil, err
	}
	var all []*entities.Description
	for _, t := range topics {
		below, err := entities.List(ctx, m, entities.Subscription, t.Path)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

func (v *verbs) show() *cobra.Command {
	c := &cobra.Command{Use: "show " + v.usage(), Short: "Show one " + v.name() + " with its counts"}
	if v.dropped != nil {
		c.Short = "Show one queue, topic or subscription, and what it dropped"
		c.Long = "NAME may be a topic or TOPIC/Subscriptions/NAME, too. What the entity dropped is asked of the operations port.\n" +
			"If neither --ops nor BUSBAR_OPS names one and the default does not answer, the rest is shown without it."
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		_, d, err := v.one(c, args, v.dropped != nil)
		if err != nil {
			return err
		}
		var dropped map[string]uint64
		if v.dropped != nil && d.Kind != entities.Topic {
			if dropped, err = v.dropped(c.Context(), d.Path); err != nil {
				return err
			}
		}
		return printOne(c.OutOrStdout(), v.f, d, dropped)
	}
	return c
}

func (v *verbs) update() *cobra.Command {
	c := &cobra.Command{Use: "update " + v.usage(), Short: "Change properties of a " + v.name(),
		Long: "Only the properties that are given are changed. Open links notice it at once. Whether it has sessions, partitions or\n" +
			"duplicate detection is fixed when it is created."}
	dry := c.Flags().Bool("dry-run", false, "say what would be changed, and change nothing")
	given := addProperties(c, v.kind, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		set, err := given.set(c, false)
		if err != nil {
			return err
		}
		m, d, err := v.one(c, args, false)
		if err != nil {
			return err
		}
		changes := entities.Changes(d, set)
		for _, p := range changes {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %q becomes %q\n", p.Name, d.Property(p.Name), p.Value)
		}
		if *dry || len(changes) == 0 {
			fmt.Fprintf(c.ErrOrStderr(), "%d properties of %s would change\n", len(changes), d.Path)
			return nil
		}
		changed, err := entities.Update(c.Context(), m, d, changes)
		if err != nil {
			return err
		}
		if changed == nil {
			return errors.New("the broker changed it and did not show it")
		}
		return printOne(c.OutOrStdout(), v.f, changed, nil)
	}
	return c
}
