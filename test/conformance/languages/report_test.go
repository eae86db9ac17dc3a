package languages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadReport(t *testing.T) {
	rep, err := ReadReport(strings.NewReader("sdk\tlib\t1.2\nscenario\ta\tpass\t12\t\n" +
		"warning of the library\nnote\tmine\nscenario\tb\tskip\t0\thas none\nscenario\tc\tfail\t3\twhy\nend\t3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if rep.Library != "lib" || rep.Version != "1.2" || !rep.Ended {
		t.Errorf("report %+v", rep)
	}
	if rep.Outcomes["a"] != (Outcome{State: "pass", Took: 12 * time.Millisecond}) ||
		rep.Outcomes["b"].Text != "has none" || rep.Outcomes["c"].State != "fail" {
		t.Errorf("outcomes %+v", rep.Outcomes)
	}
	if strings.Join(rep.Notes, "|") != "warning of the library|mine" {
		t.Errorf("notes %q", rep.Notes)
	}
}

// A runner that says nonsense must not pass.
func TestReadReportRefusesNonsense(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown state":       "scenario\ta\tmaybe\t1\tx\n",
		"a scenario twice":       "scenario\ta\tpass\t1\t\nscenario\ta\tpass\t1\t\n",
		"a failure without why":  "scenario\ta\tfail\t1\t\n",
		"a skip without why":     "scenario\ta\tskip\t1\t\n",
		"too few fields":         "scenario\ta\tpass\n",
		"no number":              "scenario\ta\tpass\tsoon\t\n",
		"a wrong count":          "scenario\ta\tpass\t1\t\nend\t2\n",
		"a negative time":        "scenario\ta\tpass\t-1\t\n",
		"a library of one field": "sdk\tlib\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadReport(strings.NewReader(text)); err == nil {
				t.Errorf("%q was taken", text)
			}
		})
	}
	rep, err := ReadReport(strings.NewReader("scenario\ta\tpass\t1\t\n"))
	if err != nil || rep.Ended {
		t.Errorf("a runner that broke off: ended %v, %v", rep.Ended, err)
	}
}

func TestReadScenarios(t *testing.T) {
	all, err := ReadScenarios(scenarioList)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 || all[0].ID != "send-one" || all[0].Group != "Sending" {
		t.Errorf("%d scenarios, the first is %+v", len(all), all[0])
	}
	for _, s := range all {
		if strings.Contains(s.Title, "|") {
			t.Errorf("the title of %s holds more than a title: %q", s.ID, s.Title)
		}
	}
	for name, text := range map[string]string{
		"twice":             "## g\na | x\na | y\n",
		"without a title":   "## g\na\n",
		"without a heading": "a | x\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "list")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadScenarios(file); err == nil {
				t.Errorf("%q was taken", text)
			}
		})
	}
}

func TestRender(t *testing.T) {
	scenarios := []Scenario{{"a", "a holds", "First"}, {"b", "b holds", "First"}, {"c", "c holds", "Second"},
		{"nobody", "nobody wrote it", "Third"}}
	got := Render(scenarios, []Column{
		{"One", map[string]Outcome{"a": {State: "pass"}, "b": {State: "skip", Text: "has none"}}},
		{"Two", map[string]Outcome{"b": {State: "skip", Text: "has none"}, "c": {State: "skip", Text: "never"}}},
	})
	_, got, _ = strings.Cut(got, "\n## ")
	want := `First

| scenario | One | Two |
| --- | --- | --- |
| a holds <!-- a --> | yes |  |
| b holds <!-- b --> | 1 | 1 |

## Second

| scenario | One | Two |
| --- | --- | --- |
| c holds <!-- c --> |  | 2 |

## In all

| library | pass | does not apply |
| --- | --- | --- |
| One | 1 | 1 |
| Two | 0 | 2 |

## Reasons

1. has none
2. never
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}
