package languages

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestIDsAgree holds four lists against each other without a broker: scenarios.txt, what each runner
// says that it can run, absent.txt, and docs/compatibility.md.
func TestIDsAgree(t *testing.T) {
	scenarios, err := ReadScenarios(scenarioList)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := ReadTable(string(table), scenarios)
	if err != nil {
		t.Fatalf("docs/compatibility.md: %v", err)
	}
	all := libraries(t)
	known := map[string]bool{}
	for _, s := range scenarios {
		known[s.ID] = true
	}
	told := map[string]bool{}
	byRunner := map[string][]string{}
	for _, l := range all {
		runner := l.version.Runner
		if byRunner[runner] == nil && l.version.Always {
			install(t, l.version)
			byRunner[runner] = l.ids(t)
		}
	}
	for runner, ids := range byRunner {
		for _, id := range ids {
			told[id] = true
			if !known[id] {
				t.Errorf("%s runs %s, which is not in scenarios.txt", runner, id)
			}
		}
	}
	for _, s := range scenarios {
		if !told[s.ID] {
			t.Errorf("%s is in scenarios.txt, and no runner has it", s.ID)
		}
	}
	for _, l := range all { // those for Go are compiled anew for each version
		if l.version.Runner == "go" {
			install(t, l.version)
			if ids := l.ids(t); !slices.Equal(ids, byRunner["go"]) {
				t.Errorf("%s differs from the newest in %q", l.name(), difference(ids, byRunner["go"]))
			}
		}
	}
	agree(t, columnsOf(all), columns, byRunner)
	absencesAreKnown(t, all, byRunner)
}

// agree compares the columns of the table with the versions and with the runners' ids.
func agree(t *testing.T, all []library, columns []Column, byRunner map[string][]string) {
	t.Helper()
	var want, got []string
	for _, l := range all {
		want = append(want, l.heading())
	}
	for _, c := range columns {
		got = append(got, c.Heading)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the table has the columns %q, versions.txt wants %q: run make compatibility", got, want)
	}
	for i, l := range all {
		cells := columns[i].Cells
		if ids := slices.Sorted(maps.Keys(cells)); !slices.Equal(ids, byRunner[l.version.Runner]) {
			t.Errorf("%s: the table and the runner differ in %q", l.name(), difference(ids, byRunner[l.version.Runner]))
		}
		for id, o := range cells {
			reason, absent := strings.CutPrefix(o.Text, absentMark)
			if absent != (l.absent[id] != "") || absent && reason != l.absent[id] {
				t.Errorf("%s: of %s the table says %q, absent.txt %q", l.name(), id, o.Text, l.absent[id])
			}
		}
	}
}

func absencesAreKnown(t *testing.T, all []library, byRunner map[string][]string) {
	t.Helper()
	absences, err := ReadAbsences(absentList)
	if err != nil {
		t.Fatal(err)
	}
	for version, reasons := range absences {
		i := slices.IndexFunc(all, func(l library) bool { return l.version.String() == version })
		if i < 0 && slices.ContainsFunc(runners, func(r runner) bool {
			return r.missing() && strings.HasPrefix(version, r.dir+"-")
		}) {
			continue
		}
		if i < 0 {
			t.Errorf("absent.txt has %s, versions.txt has not", version)
			continue
		}
		for id := range reasons {
			if !slices.Contains(byRunner[all[i].version.Runner], id) {
				t.Errorf("absent.txt: %s lacks %s, which its runner does not have", version, id)
			}
		}
	}
}

// ids are those that the runner can run, sorted.
func (l library) ids(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join("..", l.version.Runner, "run.sh"), "--list", l.version.Version).Output()
	if err != nil {
		t.Fatalf("%s --list: %v", l.name(), err)
	}
	ids := strings.Fields(string(out))
	slices.Sort(ids)
	if twice := slices.Compact(slices.Clone(ids)); len(ids) == 0 || len(twice) != len(ids) {
		t.Fatalf("%s --list prints %d ids, %d of them differ", l.name(), len(ids), len(twice))
	}
	return ids
}

// difference are the ids that only one of the lists has.
func difference(a, b []string) []string {
	var out []string
	for _, id := range a {
		if !slices.Contains(b, id) {
			out = append(out, id)
		}
	}
	for _, id := range b {
		if !slices.Contains(a, id) {
			out = append(out, id)
		}
	}
	return out
}

var scenarioAttribute = regexp.MustCompile(`\[Scenario\("([^"]+)"\)\]`)

// TestIDsOfCSharpAreKnown reads the ids out of the sources in C#, which not every machine can compile.
func TestIDsOfCSharpAreKnown(t *testing.T) {
	scenarios, err := ReadScenarios(scenarioList)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range scenarios {
		known[s.ID] = true
	}
	for _, r := range runners {
		if r.needs != "dotnet" {
			continue
		}
		seen := map[string]bool{}
		sources, err := filepath.Glob(filepath.Join("..", r.dir, "*.cs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range scenarioAttribute.FindAllStringSubmatch(string(text), -1) {
				if !known[m[1]] || seen[m[1]] {
					t.Errorf("%s has the scenario %s, which is not in scenarios.txt or comes twice", source, m[1])
				}
				seen[m[1]] = true
			}
		}
		if len(seen) < 20 {
			t.Errorf("%s has %d scenarios", r.dir, len(seen))
		}
	}
}
