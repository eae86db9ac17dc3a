package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/conformance/languages"
)

// language is how the programs of one language are run.
type language struct {
	name, title string
	file        string // the program, in the directory of an example
	runner      string // the folder beside this package whose run.sh installs the library; versions.txt names it
	pin, pinned string // the file that names the library for readers, and how it does
	needs       string // a command that not every machine of the project has
	// command returns a command without arguments; dir is the directory that has the library.
	command func(dir, example string) *exec.Cmd
}

var all = []language{
	{name: "go", title: "Go", file: "main.go", runner: "go", pin: "go.mod", pinned: "sdk/messaging/azservicebus vVERSION",
		command: func(dir, example string) *exec.Cmd { return exec.Command(filepath.Join(dir, example)) }},
	{name: "python", title: "Python", file: "main.py", runner: "python", pin: "requirements.txt",
		pinned: "azure-servicebus==VERSION",
		command: func(dir, example string) *exec.Cmd {
			return exec.Command(filepath.Join(dir, "venv", "bin", "python"), "-B", filepath.Join(root, example, "main.py"))
		}},
	{name: "javascript", title: "JavaScript", file: "main.js", runner: "js", pin: "package.json",
		pinned: `"@azure/service-bus": "VERSION"`,
		command: func(dir, example string) *exec.Cmd {
			cmd := exec.Command("node", filepath.Join(root, example, "main.js"))
			cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
			return cmd
		}},
}

// missing reports whether this machine cannot run the language.
func (l language) missing() bool {
	if l.needs == "" {
		return false
	}
	_, err := exec.LookPath(l.needs)
	return err != nil
}

// install installs the library, or for Go builds the programs, and returns the directory that has it.
func (l language) install(t *testing.T) string {
	t.Helper()
	if l.name == "go" {
		dir := t.TempDir()
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/", "./...")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0") // the linker is quicker so
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the examples: %v\n%s", err, out)
		}
		return dir
	}
	versions, err := languages.ReadVersions("../versions.txt")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(versions, func(v languages.Version) bool { return v.Runner == l.runner && v.Always })
	install := exec.CommandContext(t.Context(), filepath.Join("..", l.runner, "run.sh"), "--where", versions[i].Version)
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		t.Fatalf("install the library for %s: %v", l.title, err)
	}
	return strings.TrimSpace(string(out))
}
