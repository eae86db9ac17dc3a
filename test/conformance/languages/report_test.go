package languages

import (
	"os"
	"path/filepath"
	"reflect"
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
		{"One 1.2", "one", []Wire{{"plain", ""}, {"tls", "5671"}}, map[string]Outcome{"a": {State: "pass"}, "b": {State: "skip", Text: "has none"}}},
		{"Two 3", "two", []Wire{{"websocket", ""}}, map[string]Outcome{"b": {State: "skip", Text: "has none"}, "c": {State: "skip", Text: "never"}}},
	}, []Elsewhere{{"its tests", "one node", "2026-11-21", 9, 6, 2, 1}})
	_, got, _ = strings.Cut(got, "\n## ")
	want := `First

| scenario | One 1.2 | Two 3 |
| --- | --- | --- |
| a holds <!-- a --> | yes |  |
| b holds <!-- b --> | 1 | 1 |

## Second

| scenario | One 1.2 | Two 3 |
| --- | --- | --- |
| c holds <!-- c --> |  | 2 |

## In all

A port behind TLS or WebSocket: the version connects to that port of the host only.

| version | library | connects over | pass | does not apply |
| --- | --- | --- | --- | --- |
| One 1.2 | ` + "`one`" + ` | plain, TLS 5671 | 1 | 1 |
| Two 3 | ` + "`two`" + ` | WebSocket | 0 | 2 |
` + elsewhereText + `| its tests | one node | 2026-11-21 | 9 | 6 | 2 | 1 |

## Reasons

1. has none
2. never
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}

// What Render writes ReadTable reads, whatever columns there are.
func TestTheTableIsReadBack(t *testing.T) {
	scenarios := []Scenario{{"a", "a holds", "First"}, {"b", "b holds", "First"}, {"c", "c holds", "Second"}}
	want := []Column{
		{"One 1.2", "one", nil, map[string]Outcome{"a": {State: "pass"}, "b": {State: "skip", Text: "has none"}}},
		{"Two 3", "two/x", nil, map[string]Outcome{"b": {State: "skip", Text: "never"}, "c": {State: "pass"}}},
	}
	text := Render(scenarios, want, []Elsewhere{{"what", "on", "2026-11-21", 3, 1, 1, 1}})
	got, err := ReadTable(text, scenarios)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, bad := range map[string]string{
		"an unknown scenario": strings.Replace(text, "<!-- c -->", "<!-- d -->", 1),
		"another order":       strings.NewReplacer("<!-- a -->", "<!-- b -->", "<!-- b -->", "<!-- a -->").Replace(text),
		"a missing reason":    strings.Replace(text, "1. has none\n", "", 1),
		"a missing cell":      strings.Replace(text, "| yes |  |", "| yes |", 1),
		"a failure":           strings.Replace(text, "| yes |", "| no |", 1),
		"another heading":     strings.Replace(text, "| scenario | One 1.2 |", "| scenario | One 1.3 |", 1),
		"no table":            "nothing",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadTable(bad, scenarios); err == nil {
				t.Error("it was taken")
			}
		})
	}
}

func TestVersionsAndAbsences(t *testing.T) {
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	got, err := ReadVersions(file("# c\n\njs | 7.0.5 | full | tls:5671 websocket\njs | 8 | always | plain\n"))
	want := []Version{{"js", "7.0.5", false, []Wire{{"tls", "5671"}, {"websocket", ""}}},
		{"js", "8", true, []Wire{{"plain", ""}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"another time":    "js | 1 | often | plain\n",
		"another wire":    "js | 1 | full | carrier\n",
		"a version twice": "js | 1 | full | plain\njs | 1 | always | plain\n",
		"a missing field": "js | 1 | full\n",
		"an empty field":  "js |  | full | plain\n",
	} {
		if _, err := ReadVersions(file(text)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	absent, err := ReadAbsences(file("js | 1 | a b | no c\njs | 1 | d | no e\n"))
	if err != nil || !reflect.DeepEqual(absent, Absences{"js-1": {"a": "no c", "b": "no c", "d": "no e"}}) {
		t.Errorf("got %v, %v", absent, err)
	}
	if _, err := ReadAbsences(file("js | 1 | a | x\njs | 1 | a | y\n")); err == nil {
		t.Error("a scenario twice was taken")
	}
}

func TestTheVersionsOfTheReadme(t *testing.T) {
	spans := []Span{{"One", "1", "3"}, {"Two", "2", "2"}}
	got, err := WithVersions("before\n"+spanBegin+"old\n"+spanEnd+"\nafter\n", spans)
	want := "before\n" + spanBegin + "| client | oldest version known to work | newest |\n| --- | --- | --- |\n" +
		"| One | 1 | 3 |\n| Two | 2 | 2 |\n" + spanEnd + "\nafter\n"
	if err != nil || got != want {
		t.Errorf("%v, got:\n%s", err, got)
	}
	if _, err := WithVersions("nothing", spans); err == nil {
		t.Error("a text without the marks was taken")
	}
}

func TestReadElsewhere(t *testing.T) {
	for text, want := range map[string]string{
		"a | b | 2026-11-21 | 3 | 1 | 1 | 1": "",
		"a | b | 2026-11-21 | 4 | 1 | 1 | 1": "do not add up to 4",
		"a | b | 21.11.2026 | 3 | 1 | 1 | 1": "cannot parse",
		"a | b | 2026-11-21 | x | 1 | 1 | 1": "invalid syntax",
		"a | b | 2026-11-21 | 3 | 1 | 1":     "6 fields, want 7",
	} {
		file := filepath.Join(t.TempDir(), "elsewhere.txt")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadElsewhere(file)
		if want == "" {
			if err != nil || len(got) != 1 || got[0] != (Elsewhere{"a", "b", "2026-11-21", 3, 1, 1, 1}) {
				t.Errorf("%q: %v, %v", text, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The page holds what Render makes of its own cells, of versions.txt and of elsewhere.txt.
func TestThePageIsRendered(t *testing.T) {
	scenarios, err := ReadScenarios(scenarioList)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := ReadElsewhere(elsewhereList)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := ReadTable(string(page), scenarios)
	if err != nil {
		t.Fatal(err)
	}
	all := columnsOf(libraries(t))
	if len(all) != len(columns) {
		t.Fatalf("%d columns, versions.txt has %d", len(columns), len(all))
	}
	for i, l := range all {
		columns[i].Wires = l.version.Wires
	}
	if is := Render(scenarios, columns, elsewhere); is != string(page) {
		t.Errorf("docs/compatibility.md is not what its cells and the lists render to; run make compatibility:\n%s",
			changed(string(page), is))
	}
}
