package languages

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	versions = flag.String("versions", "newest", "newest: those that versions.txt runs always; all: every version")
	wires    = flag.String("wires", "plain", "what to connect over: plain, tls, websocket, separated by commas")
	nodes    = flag.String("nodes", "1", "sizes of clusters, separated by commas")
	only     = flag.String("only", "", "ids of scenarios, separated by blanks; the table is left alone")
	write    = flag.Bool("write", false, "write docs/compatibility.md and the versions in README.md")
	timeFile = flag.String("times", "", "a file to which the time of each run is appended")
)

const (
	scenarioList  = "../scenarios.txt"
	versionList   = "../versions.txt"
	absentList    = "../absent.txt"
	elsewhereList = "../elsewhere.txt"
	tableFile     = "../../../docs/compatibility.md"
	readmeFile    = "../../../README.md"
	installLimit  = 5 * time.Minute
	runLimit      = 10 * time.Minute
)

// runners are the folders beside this package, in the order of the table's columns, and the kinds of
// clients that their libraries have.
var runners = []runner{
	{dir: "js", language: "JavaScript", clients: []string{""}},
	{dir: "python", language: "Python", clients: []string{"sync", "aio"}},
	{dir: "java", language: "Java", clients: []string{""}},
	{dir: "go", language: "Go", clients: []string{""}},
	{dir: "proton", language: "Qpid Proton", clients: []string{""}},
	{dir: "jms", language: "JMS", clients: []string{""}},
	{dir: "dotnet", language: ".NET", clients: []string{""}, needs: "dotnet"},
	{dir: "amqpnetlite", language: "AMQPNetLite", clients: []string{""}, needs: "dotnet"},
}

type runner struct {
	dir, language string
	clients       []string
	// needs is a command that not every machine of the project has. A runner with one runs where the
	// command is on the path, and has no column in the table.
	needs string
}

// missing reports whether the runner cannot run on this machine.
func (r runner) missing() bool {
	if r.needs == "" {
		return false
	}
	_, err := exec.LookPath(r.needs)
	return err != nil
}

// library is one column of the table: a version, and which of its clients to try.
type library struct {
	version          Version
	language, client string
	needs            string            // of the runner
	absent           map[string]string // reason by id of the scenario
}

// name is how a test is chosen with -run.
func (l library) name() string {
	return strings.TrimSuffix(l.version.String()+"-"+l.client, "-")
}

func (l library) heading() string {
	if l.client == "aio" {
		return l.language + " aio " + l.version.Version
	}
	return l.language + " " + l.version.Version
}

func (l library) absentIDs() []string { return slices.Sorted(maps.Keys(l.absent)) }

// libraries are those of all runners of this machine, the columns of the table first and in its order.
func libraries(t *testing.T) []library {
	t.Helper()
	listed, err := ReadVersions(versionList)
	if err != nil {
		t.Fatal(err)
	}
	absences, err := ReadAbsences(absentList)
	if err != nil {
		t.Fatal(err)
	}
	var all []library
	for _, r := range runners {
		if r.missing() {
			continue
		}
		for _, client := range r.clients {
			for _, v := range listed {
				if v.Runner == r.dir {
					all = append(all, library{v, r.language, client, r.needs, absences[v.String()]})
				}
			}
		}
	}
	return all
}

// columnsOf leaves out the libraries that have no column in the table.
func columnsOf(all []library) []library {
	return slices.DeleteFunc(slices.Clone(all), func(l library) bool { return l.needs != "" })
}

// wanted are the libraries that the flag asks for.
func wanted(t *testing.T) []library {
	t.Helper()
	if *versions != "newest" && *versions != "all" {
		t.Fatalf("-versions: %q is neither newest nor all", *versions)
	}
	return slices.DeleteFunc(libraries(t), func(l library) bool { return *versions == "newest" && !l.version.Always })
}

// TestLibraries runs every library against nodes of its own and compares with the table. The flag -parallel of
// go test is how many libraries run at a time: each has many scenarios that wait and a few that work.
func TestLibraries(t *testing.T) {
	scenarios, err := ReadScenarios(scenarioList)
	if err != nil {
		t.Fatal(err)
	}
	tellMissing()
	chosen := wanted(t)
	columns := make([]Column, len(chosen))
	t.Run("with", func(t *testing.T) {
		for i, l := range chosen {
			t.Run(l.name(), func(t *testing.T) {
				install(t, l.version)
				t.Parallel()
				if column := l.try(t, scenarios); !t.Failed() && l.needs == "" {
					columns[i] = column
				}
			})
		}
	})
	if *only == "" && (*write || !t.Failed()) {
		// Those that failed or were left out by -run stay as the table has them.
		columns = slices.DeleteFunc(columns, func(c Column) bool { return c.Cells == nil })
		compare(t, scenarios, columns)
	}
}

// tellMissing says aloud which runners this machine cannot run: nobody shall take them for passed.
func tellMissing() {
	for _, r := range runners {
		if r.missing() {
			line := fmt.Sprintf("SKIPPED: the scenarios of %s did not run, for the command %s is not on the path",
				r.language, r.needs)
			fmt.Println(line)
			times.line(line)
		}
	}
}

var installed struct {
	sync.Mutex
	done map[string]bool // by Version.String
}

// install makes sure that what the library needs is there; that is not the scenarios' time.
func install(t *testing.T, v Version) {
	t.Helper()
	installed.Lock()
	defer installed.Unlock()
	if installed.done[v.String()] {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, filepath.Join("..", v.Runner, "run.sh"), "--install", v.Version).CombinedOutput()
	if err != nil {
		t.Fatalf("install %s: %v\n%s", v, err, out)
	}
	if installed.done == nil {
		installed.done = map[string]bool{}
	}
	installed.done[v.String()] = true
	times.add("install "+v.String(), time.Since(began))
}

// times appends how long things took to the file of the flag.
var times timeKeeper

type timeKeeper struct{ sync.Mutex }

func (k *timeKeeper) add(what string, took time.Duration) {
	k.line(fmt.Sprintf("%6.1f s  %s", took.Seconds(), what))
}

func (k *timeKeeper) line(text string) {
	k.Lock()
	defer k.Unlock()
	if *timeFile == "" {
		return
	}
	f, err := os.OpenFile(*timeFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return // the times are for people, no test needs them
	}
	defer f.Close()
	fmt.Fprintln(f, text)
}

// compare holds the table and the README against what came out, so that nothing stops passing in
// silence. Columns that did not run stay as the table has them.
func compare(t *testing.T, scenarios []Scenario, ran []Column) {
	was, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	old, err := ReadTable(string(was), scenarios)
	if err != nil {
		t.Fatalf("docs/compatibility.md: %v", err)
	}
	all := columnsOf(libraries(t))
	elsewhere, err := ReadElsewhere(elsewhereList)
	if err != nil {
		t.Fatal(err)
	}
	var columns []Column
	for _, l := range all {
		with := func(c Column) bool { return c.Heading == l.heading() }
		if i := slices.IndexFunc(ran, with); i >= 0 {
			columns = append(columns, ran[i])
		} else if i := slices.IndexFunc(old, with); i >= 0 {
			old[i].Wires = l.version.Wires
			columns = append(columns, old[i])
		} else {
			t.Errorf("%s is in versions.txt and not in docs/compatibility.md: run make compatibility", l.heading())
		}
	}
	if *write || !t.Failed() {
		hold(t, tableFile, string(was), Render(scenarios, columns, elsewhere))
	}
	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	now, err := WithVersions(string(readme), spans(all))
	if err != nil {
		t.Fatal(err)
	}
	hold(t, readmeFile, string(readme), now)
}

// spans are the oldest and the newest version of each library, in the order of versions.txt.
func spans(all []library) []Span {
	var out []Span
	for _, l := range all {
		if l.client == "aio" {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Language == l.language {
			out[n-1].Newest = l.version.Version
			continue
		}
		out = append(out, Span{l.language, l.version.Version, l.version.Version})
	}
	return out
}

// hold writes what the file should be, or reports how it differs.
func hold(t *testing.T, file, was, is string) {
	t.Helper()
	if was == is {
		return
	}
	if !*write {
		t.Errorf("%s tells something else; see what changed, then run make compatibility:\n%s", file, changed(was, is))
		return
	}
	if err := os.WriteFile(file, []byte(is), 0o644); err != nil {
		t.Fatal(err)
	}
}

// changed returns the lines that only one of the texts has.
func changed(was, is string) string {
	var b strings.Builder
	old, now := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, l := range old {
		if !slices.Contains(now, l) {
			fmt.Fprintln(&b, "-", l)
		}
	}
	for _, l := range now {
		if !slices.Contains(old, l) {
			fmt.Fprintln(&b, "+", l)
		}
	}
	return b.String()
}
