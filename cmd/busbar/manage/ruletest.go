package manage

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/rest"
)

// newSample reads the properties of a message. Types and values are read by the code that reads them in a rule.
func newSample(fields, properties []string) (*rest.Sample, error) {
	system, user, err := readPairs(fields, properties)
	if err != nil {
		return nil, err
	}
	s := &rest.Sample{Systems: map[rule.SystemProperty]rule.Value{}}
	for _, f := range system {
		s.Systems[rule.FindSystemProperty(f.Name)] = rule.OfString(f.Value)
	}
	if len(user) == 0 {
		return s, nil
	}
	carrier := entities.Rule{Name: "message", Filter: "Correlation", Properties: user}
	source, err := rest.ParseRule(strings.NewReader(carrier.Document()))
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	s.User = source.Correlation.Properties
	return s, nil
}

// try evaluates one rule.
func try(s *rest.Sample, name string, source *rule.Source) (rest.Verdict, error) {
	v, err := s.Try(name, source)
	if err != nil {
		return v, exit.With(exit.Usage, fmt.Errorf("rule %s: %w", name, err))
	}
	return v, nil
}

func ruleTest(f *dial.Flags) *cobra.Command {
	c := &cobra.Command{
		Use: "test [TOPIC SUBSCRIPTION]", Short: "Try rules on a message that the flags describe",
		Long: "Without a subscription the command tries the filter of --sql and the action of --action, and needs no broker.\n" +
			"With one it tries each of its rules. The exit code is 1 if no rule selects the message.",
		Example: "  busbar rule test --sql \"region = 'eu' AND priority > 3\" --property region=eu --property priority:int=5\n" +
			"  busbar rule test trade eu --field Label=trade --property region=eu",
	}
	var sql, action string
	var fields, properties []string
	flags := c.Flags()
	flags.StringVar(&sql, "sql", "", "the filter to try")
	flags.StringVar(&action, "action", "", "the action to try")
	flags.StringArrayVar(&fields, "field", nil, "of the message: NAME=VALUE, of "+strings.Join(entities.CorrelationFields(), ", "))
	flags.StringArrayVar(&properties, "property", nil, "of the message: NAME[:TYPE]=VALUE, an application property")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.CheckOutput(); err != nil {
			return err
		}
		s, err := newSample(fields, properties)
		if err != nil {
			return err
		}
		var verdicts []rest.Verdict
		if len(args) > 0 {
			if sql != "" || action != "" {
				return exit.Usagef("--sql and --action are tried without a subscription")
			}
			verdicts, err = subscriptionVerdicts(s, c, f, args)
		} else {
			verdicts, err = expressionVerdicts(s, c, sql, action)
		}
		if err != nil {
			return err
		}
		return printVerdicts(c.OutOrStdout(), f, verdicts)
	}
	return c
}

// expressionVerdicts tries what the flags say.
func expressionVerdicts(s *rest.Sample, c *cobra.Command, sql, action string) ([]rest.Verdict, error) {
	source := rule.Source{Kind: rule.TrueFilter, Action: action}
	switch {
	case c.Flags().Changed("sql"):
		source.Kind, source.Expression = rule.SQLFilter, sql
	case action == "":
		return nil, exit.Usagef("give --sql or --action, or a topic and a subscription")
	}
	v, err := try(s, "-", &source)
	return []rest.Verdict{v}, err
}

// subscriptionVerdicts tries the rules of a subscription.
func subscriptionVerdicts(s *rest.Sample, c *cobra.Command, f *dial.Flags, args []string) ([]rest.Verdict, error) {
	path, err := subscriptionPath(c, args)
	if err != nil {
		return nil, err
	}
	m, err := management(f)
	if err != nil {
		return nil, err
	}
	rules, err := entities.Rules(c.Context(), m, path)
	if err != nil {
		return nil, err
	}
	var all []rest.Verdict
	for _, e := range rules {
		source, err := rest.ParseRule(strings.NewReader(entities.RuleDocument(e.Content)))
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", e.Title, err)
		}
		v, err := try(s, e.Title, &source)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// printVerdicts writes a row for each rule; the error has the code [exit.Failed] if none selects the message.
func printVerdicts(w io.Writer, f *dial.Flags, all []rest.Verdict) error {
	selected := false
	rows := [][]string{{"RULE", "SELECTED", "CHANGES"}}
	for _, v := range all {
		selected = selected || v.Selected
		answer := map[bool]string{true: "yes", false: "no"}[v.Selected]
		changes := strings.Join(v.Changes, "; ")
		if v.Error != "" {
			answer, changes = "error", v.Error
		}
		if changes == "" {
			changes = "-"
		}
		rows = append(rows, []string{v.Rule, answer, changes})
	}
	var err error
	if f.Output == "json" {
		err = dial.PrintJSON(w, all)
	} else {
		err = dial.PrintTable(w, rows)
	}
	if err == nil && !selected {
		return exit.With(exit.Failed, fmt.Errorf("no rule selects the message"))
	}
	return err
}
