package manage

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func TestSpans(t *testing.T) {
	for text, want := range map[string]string{
		"90s": "PT90S", "1m30s": "PT90S", "36h": "PT129600S", "14d": "P14D", "1d12h": "P1DT43200S", "500ms": "PT0.5S",
		"PT1M": "PT1M", "p1d": "P1D", "unlimited": entities.Unlimited, "0s": "PT0S",
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "90", "-1s", "d", "1d-1h", "a day", "1w"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
	for text, want := range map[string]string{"PT1M30S": "1m30s", "P14D": "14d", "P1DT2H": "1d2h", "": "", entities.Unlimited: "unlimited"} {
		if got := shortSpan(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Each property has a flag for the kinds of entities that have it, and what is fixed has none in an update.
func TestFlagsOfProperties(t *testing.T) {
	for _, tc := range []struct {
		kind     string
		creation bool
		args     string
		want     string
	}{
		{entities.Queue, true, "--session --lock-duration 30s --duplicate-window 1h",
			"LockDuration=PT30S RequiresDuplicateDetection=true DuplicateDetectionHistoryTimeWindow=PT3600S"},
		{entities.Queue, true, "--session=false --max-size-mb 2048 --status SendDisabled",
			"RequiresSession=false MaxSizeInMegabytes=2048 Status=SendDisabled"},
		{entities.Queue, false, "--duplicate-window 1h --default-ttl unlimited",
			"DefaultMessageTimeToLive=" + entities.Unlimited + " DuplicateDetectionHistoryTimeWindow=PT3600S"},
		{entities.Subscription, false, "--dead-letter-on-filter-error=false", "DeadLetteringOnFilterEvaluationExceptions=false"},
		{entities.Topic, false, "--metadata x --no-dead-letter", "unknown flag"},
		{entities.Queue, false, "--partitioned", "unknown flag"},
		{entities.Subscription, true, "--duplicate-window 1h", "unknown flag"},
		{entities.Queue, true, "--max-delivery-count many", "invalid argument"},
		{entities.Queue, true, "--lock-duration soon", "is no duration"},
		{entities.Queue, false, "", "nothing is to be changed"},
	} {
		c := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
		f := addProperties(c, tc.kind, tc.creation)
		var set []entities.Property
		c.RunE = func(c *cobra.Command, _ []string) (err error) {
			set, err = f.set(c, tc.creation)
			return err
		}
		c.SetArgs(strings.Fields(tc.args))
		got := ""
		if err := c.Execute(); err != nil {
			got = err.Error()
		}
		for _, p := range set {
			got += " " + p.Name + "=" + p.Value
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s, creation %t, %s: %s, want %s", tc.kind, tc.creation, tc.args, got, tc.want)
		}
	}
}

// S-217 to S-221: an expression is tried as the broker evaluates it.
func TestRulesAreTried(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--sql", "region = 'eu' AND priority > 3", "--property", "region=eu", "--property", "priority:int=5"}, 0, "- yes -"},
		{[]string{"--sql", "region = 'eu'", "--property", "region=us"}, 1, "- no -"},
		{[]string{"--sql", "sys.Label LIKE 'a%'", "--field", "Subject=abc"}, 0, "- yes -"},
		{[]string{"--sql", "price >= 19.9", "--property", "price:decimal=19.90"}, 0, "- yes -"},
		{[]string{"--sql", "missing = 1"}, 1, "- no -"},
		{[]string{"--sql", "a / 0 = 1", "--property", "a:int=1"}, 1, "- error "},
		{[]string{"--action", "SET routed = TRUE; SET n = 2; SET sys.Label = 'it''s'; REMOVE trace", "--property", "trace=x"}, 0,
			"- yes SET routed = true; SET n = 2; SET sys.Label = 'it''s'; REMOVE trace"},
		{[]string{"--sql", "a = = 3"}, exit.Usage, "character 5"},
		{[]string{}, exit.Usage, "give --sql or --action"},
		{[]string{"--sql", "1=1", "--property", "x"}, exit.Usage, "want NAME=VALUE"},
		{[]string{"--sql", "1=1", "--property", "x:money=1"}, exit.Usage, "is no type"},
		{[]string{"--sql", "1=1", "--property", "x:int=one"}, exit.Usage, "not of the type int"},
		{[]string{"--sql", "1=1", "--field", "Colour=red"}, exit.Usage, "with a name of"},
		{[]string{"topic", "--sql", "1=1"}, exit.Usage, "without a subscription"},
	} {
		c := &cobra.Command{Use: "rule", SilenceErrors: true, SilenceUsage: true}
		c.AddCommand(ruleTest(dial.AddFlags(c)))
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetArgs(append([]string{"test"}, tc.args...))
		err := c.Execute()
		if err != nil {
			out.WriteString(err.Error())
		}
		if text := strings.Join(strings.Fields(out.String()), " "); exit.Code(err) != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("rule test %q: exit code %d, want %d: %s, want %s", tc.args, exit.Code(err), tc.code, text, tc.want)
		}
	}
}

func TestNamesOfSubscriptions(t *testing.T) {
	c := &cobra.Command{Use: "show"}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"t", "s"}, "t/Subscriptions/s"}, {[]string{"t/subscriptions/s"}, "t/Subscriptions/s"},
		{[]string{"a/b/Subscriptions/s"}, "a/b/Subscriptions/s"}, {[]string{"t"}, ""}, {[]string{"t", "a/b"}, ""},
		{[]string{"t", ""}, ""}, {[]string{"t", "s", "r"}, ""}, {nil, ""}, {[]string{"t/Subscriptions/"}, ""},
	} {
		got, err := subscriptionPath(c, tc.args)
		if got != tc.want || (err == nil) != (tc.want != "") || (err != nil && exit.Code(err) != exit.Usage) {
			t.Errorf("%q: %q, %v", tc.args, got, err)
		}
	}
}
