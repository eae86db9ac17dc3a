package manage

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewRuleCommand makes busbar rule.
func NewRuleCommand() *cobra.Command {
	c := &cobra.Command{Use: "rule", Short: "Create, list, show, change, delete and try rules of subscriptions",
		Long: "A subscription gets a copy of each message that one of its rules selects. The subscription is named by its topic\n" +
			"and its name, or by its path: TOPIC/Subscriptions/NAME. The name of the rule stands behind it.",
		Args: cobra.NoArgs, RunE: needsVerb}
	f := dial.AddFlags(c)
	c.AddCommand(ruleCreate(f, false), ruleCreate(f, true), ruleList(f), ruleShow(f), ruleDelete(f), ruleTest(f))
	return c
}

// ruleFlags are the flags that say what a rule selects and changes.
type ruleFlags struct {
	rule               entities.Rule
	all, none          bool
	fields, properties []string
}

func addRuleFlags(c *cobra.Command) *ruleFlags {
	r := new(ruleFlags)
	flags := c.Flags()
	flags.StringVar(&r.rule.SQL, "sql", "", "SQL filter, such as \"region = 'eu' AND sys.Label LIKE 'a%'\"")
	flags.StringArrayVar(&r.fields, "field", nil, "correlation filter: NAME=VALUE, of "+strings.Join(entities.CorrelationFields(), ", "))
	flags.StringArrayVar(&r.properties, "property", nil, "correlation filter: NAME[:TYPE]=VALUE, an application property (types: int, "+
		"long, double, boolean, decimal, guid, dateTime, duration and others)")
	flags.BoolVar(&r.all, "true", false, "select every message")
	flags.BoolVar(&r.none, "false", false, "select none")
	flags.StringVar(&r.rule.Action, "action", "", "SQL action on the copy, such as \"SET priority = 1; REMOVE trace\"")
	return r
}

// given reports whether the command line says anything of a rule.
func (r *ruleFlags) given(c *cobra.Command) bool {
	return slices.ContainsFunc([]string{"sql", "field", "property", "true", "false", "action", "rule"}, c.Flags().Changed)
}

// read makes the rule that the flags say; without a filter it selects every message.
func (r *ruleFlags) read(c *cobra.Command) (*entities.Rule, error) {
	kinds := 0
	for _, is := range []bool{c.Flags().Changed("sql"), len(r.fields)+len(r.properties) > 0, r.all, r.none} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		return nil, exit.Usagef("a rule has one filter: --sql, --field with --property, --true or --false")
	}
	out := r.rule
	out.Filter = "True"
	switch {
	case c.Flags().Changed("sql"):
		out.Filter = "Sql"
	case r.none:
		out.Filter = "False"
	case len(r.fields)+len(r.properties) > 0:
		out.Filter = "Correlation"
	}
	var err error
	out.Fields, out.Properties, err = readPairs(r.fields, r.properties)
	return &out, err
}

// readPairs reads NAME=VALUE of system properties and NAME[:TYPE]=VALUE of application properties.
func readPairs(fields, typed []string) (system []entities.Property, user []entities.TypedProperty, err error) {
	for _, text := range fields {
		name, value, ok := strings.Cut(text, "=")
		known := entities.CorrelationField(name)
		if !ok || known == "" {
			return nil, nil, exit.Usagef("--field %s: want NAME=VALUE with a name of %s", text,
				strings.Join(entities.CorrelationFields(), ", "))
		}
		system = append(system, entities.Property{Name: known, Value: value})
	}
	for _, text := range typed {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, nil, exit.Usagef("--property %s: want NAME=VALUE or NAME:TYPE=VALUE", text)
		}
		kind := "string"
		if before, after, has := strings.Cut(name, ":"); has {
			if kind = entities.ValueType(after); kind == "" {
				return nil, nil, exit.Usagef("--property %s: %q is no type; want %s", text, after, strings.Join(entities.ValueTypes(), ", "))
			}
			name = before
		}
		user = append(user, entities.TypedProperty{Name: name, Type: kind, Value: value})
	}
	return system, user, nil
}

// rulePath reads the subscription and the name of a rule.
func rulePath(c *cobra.Command, args []string) (subscription, name string, err error) {
	if len(args) < 2 {
		return "", "", exit.Usagef("%s takes a subscription and the name of a rule", c.CommandPath())
	}
	last := len(args) - 1
	subscription, err = subscriptionPath(c, args[:last])
	return subscription, args[last], err
}

// oneRule connects to the broker and reads which rule the command line names.
func oneRule(c *cobra.Command, f *dial.Flags, args []string) (m *dial.Management, path string, err error) {
	subscription, name, err := rulePath(c, args)
	if err != nil {
		return nil, "", err
	}
	m, err = management(f)
	return m, entities.RulePath(subscription, name), err
}

const ruleUsage = " TOPIC SUBSCRIPTION NAME"

func ruleCreate(f *dial.Flags, update bool) *cobra.Command {
	c := &cobra.Command{Use: "create" + ruleUsage, Short: "Add a rule to a subscription",
		Example: "  busbar rule create trade eu region --sql \"region = 'eu'\" --action \"SET routed = TRUE\"\n" +
			"  busbar rule create trade eu urgent --field Label=trade --property priority:int=5"}
	if update {
		c.Use, c.Short, c.Example = "update"+ruleUsage, "Replace filter and action of a rule", ""
	}
	r := addRuleFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		subscription, name, err := rulePath(c, args)
		if err != nil {
			return err
		}
		rule, err := r.read(c)
		if err != nil {
			return err
		}
		if update && !r.given(c) {
			return exit.Usagef("say what the rule selects: --sql, --field, --property, --true or --false")
		}
		rule.Name = name
		m, err := management(f)
		if err != nil {
			return err
		}
		put := entities.CreateRule
		if update {
			put = entities.UpdateRule
		}
		made, err := put(c.Context(), m, subscription, rule)
		if err != nil {
			return err
		}
		return printRules(c.OutOrStdout(), f, []dial.Entry{made}, true)
	}
	return c
}

func ruleList(f *dial.Flags) *cobra.Command {
	return &cobra.Command{Use: "list TOPIC SUBSCRIPTION", Short: "List the rules of a subscription",
		RunE: func(c *cobra.Command, args []string) error {
			subscription, err := subscriptionPath(c, args)
			if err != nil {
				return err
			}
			m, err := management(f)
			if err != nil {
				return err
			}
			all, err := entities.Rules(c.Context(), m, subscription)
			if err != nil {
				return err
			}
			return printRules(c.OutOrStdout(), f, all, false)
		}}
}

func ruleShow(f *dial.Flags) *cobra.Command {
	return &cobra.Command{Use: "show" + ruleUsage, Short: "Show one rule",
		RunE: func(c *cobra.Command, args []string) error {
			m, path, err := oneRule(c, f, args)
			if err != nil {
				return err
			}
			e, err := m.Get(c.Context(), path)
			if err != nil {
				return err
			}
			if e.Content == nil {
				return exit.With(exit.NotFound, fmt.Errorf("there is no %s", path))
			}
			return printRules(c.OutOrStdout(), f, []dial.Entry{e}, true)
		}}
}

func ruleDelete(f *dial.Flags) *cobra.Command {
	return &cobra.Command{Use: "delete" + ruleUsage, Short: "Delete a rule: its subscription gets no more by it",
		RunE: func(c *cobra.Command, args []string) error {
			m, path, err := oneRule(c, f, args)
			if err != nil {
				return err
			}
			if err := m.Delete(c.Context(), path); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"deleted": path}, "deleted "+path)
		}}
}

// ruleObject is a rule as JSON.
func ruleObject(e dial.Entry) map[string]any {
	f := e.Content.Child("Filter")
	filter := map[string]any{"type": strings.TrimSuffix(f.Type(), "Filter")}
	if f.Type() == "SqlFilter" {
		filter["sqlExpression"] = f.Value("SqlExpression")
	}
	for _, name := range entities.CorrelationFields() {
		if c := f.Child(name); c != nil {
			filter[camel(name)] = c.Text
		}
	}
	if list := f.Child("Properties"); list != nil && len(list.Nodes) > 0 {
		filter["properties"] = pairObjects(list)
	}
	out := map[string]any{"name": e.Title, "filter": filter}
	if list := f.Child("Parameters"); list != nil && len(list.Nodes) > 0 {
		filter["parameters"] = pairObjects(list)
	}
	if action := e.Content.Child("Action").Value("SqlExpression"); action != "" {
		out["action"] = action
	}
	return out
}

// pairObjects are the values of a filter with their types.
func pairObjects(list *dial.Element) []map[string]string {
	out := make([]map[string]string, len(list.Nodes))
	for i := range list.Nodes {
		value := list.Nodes[i].Child("Value")
		out[i] = map[string]string{"name": list.Nodes[i].Value("Key"), "type": value.Type(), "value": list.Nodes[i].Value("Value")}
	}
	return out
}

// printRules writes rules: a table, an array, or an object for a command about one rule.
func printRules(w io.Writer, f *dial.Flags, all []dial.Entry, single bool) error {
	if f.Output == "json" {
		out := make([]any, len(all))
		for i, e := range all {
			out[i] = ruleObject(e)
		}
		if single {
			return dial.PrintJSON(w, out[0])
		}
		return dial.PrintJSON(w, out)
	}
	rows := [][]string{{"NAME", "FILTER", "SELECTS", "ACTION"}}
	for _, e := range all {
		kind := strings.TrimSuffix(e.Content.Child("Filter").Type(), "Filter")
		action := e.Content.Child("Action").Value("SqlExpression")
		if action == "" {
			action = "-"
		}
		rows = append(rows, []string{e.Title, kind, entities.FilterText(e.Content), action})
	}
	return dial.PrintTable(w, rows)
}
