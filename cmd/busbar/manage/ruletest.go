package manage

import (
	"crypto/rand"
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

// sample is a message that the command line describes.
type sample struct {
	user   []rule.Property
	system map[rule.SystemProperty]rule.Value
}

// User implements rule.Message.
func (s *sample) User(name string) (rule.Value, bool) {
	for _, p := range s.user {
		if rule.SameName(p.Name, name) {
			return p.Value, true
		}
	}
	return rule.Value{}, false
}

// Properties implements rule.Message.
func (s *sample) Properties() int { return len(s.user) }

// System implements rule.Message.
func (s *sample) System(p rule.SystemProperty) rule.Value { return s.system[p] }

// NewID implements rule.Message.
func (s *sample) NewID() (id [16]byte) {
	_, _ = rand.Read(id[:])
	return id
}

// newSample reads the properties of a message. Types and values are read by the code that reads them in a rule.
func newSample(fields, properties []string) (*sample, error) {
	system, user, err := readPairs(fields, properties)
	if err != nil {
		return nil, err
	}
	s := &sample{system: map[rule.SystemProperty]rule.Value{}}
	for _, f := range system {
		s.system[rule.FindSystemProperty(f.Name)] = rule.OfString(f.Value)
	}
	if len(user) == 0 {
		return s, nil
	}
	carrier := entities.Rule{Name: "message", Filter: "Correlation", Properties: user}
	source, err := rest.ParseRule(strings.NewReader(carrier.Document()))
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	s.user = source.Correlation.Properties
	return s, nil
}

// verdict is what one rule does with the sample.
type verdict struct {
	Rule     string   `json:"rule"`
	Selected bool     `json:"selected"`
	Changes  []string `json:"changes,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// try evaluates one rule. An evaluation that fails is a verdict, too: such a message is dead-lettered or dropped (S-221).
func (s *sample) try(name string, source *rule.Source) (verdict, error) {
	v := verdict{Rule: name}
	compiled, err := source.Compile()
	if err != nil {
		return v, exit.With(exit.Usage, fmt.Errorf("rule %s: %w", name, err))
	}
	if v.Selected, err = compiled.Filter.Match(s); err != nil {
		v.Error = err.Error()
		return v, nil
	}
	if !v.Selected || compiled.Action == nil {
		return v, nil
	}
	changes, err := compiled.Action.Apply(s)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	for _, c := range changes {
		property := c.Name
		if c.System != rule.NoProperty {
			property = "sys." + c.System.String()
		}
		if c.Remove {
			v.Changes = append(v.Changes, "REMOVE "+property)
			continue
		}
		v.Changes = append(v.Changes, "SET "+property+" = "+literal(c.Value))
	}
	return v, nil
}

// literal writes a value as an action would.
func literal(v rule.Value) string {
	switch v.Kind() {
	case rule.Null:
		return "NULL"
	case rule.String:
		return "'" + strings.ReplaceAll(v.Text(), "'", "''") + "'"
	}
	_, text, _ := strings.Cut(v.String(), ":")
	return text
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
		var verdicts []verdict
		if len(args) > 0 {
			if sql != "" || action != "" {
				return exit.Usagef("--sql and --action are tried without a subscription")
			}
			verdicts, err = s.subscription(c, f, args)
		} else {
			verdicts, err = s.expression(c, sql, action)
		}
		if err != nil {
			return err
		}
		return printVerdicts(c.OutOrStdout(), f, verdicts)
	}
	return c
}

// expression tries what the flags say.
func (s *sample) expression(c *cobra.Command, sql, action string) ([]verdict, error) {
	source := rule.Source{Kind: rule.TrueFilter, Action: action}
	switch {
	case c.Flags().Changed("sql"):
		source.Kind, source.Expression = rule.SQLFilter, sql
	case action == "":
		return nil, exit.Usagef("give --sql or --action, or a topic and a subscription")
	}
	v, err := s.try("-", &source)
	return []verdict{v}, err
}

// subscription tries the rules of a subscription.
func (s *sample) subscription(c *cobra.Command, f *dial.Flags, args []string) ([]verdict, error) {
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
	var all []verdict
	for _, e := range rules {
		source, err := rest.ParseRule(strings.NewReader(entities.RuleDocument(e.Content)))
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", e.Title, err)
		}
		v, err := s.try(e.Title, &source)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// printVerdicts writes a row for each rule; the error has the code [exit.Failed] if none selects the message.
func printVerdicts(w io.Writer, f *dial.Flags, all []verdict) error {
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
