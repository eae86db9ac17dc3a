package examples

import (
	"os"
	"os/exec"
	"path/filepath"
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
	{name: "java", title: "Java", file: "Main.java", runner: "java", pin: "pom.xml", pinned: "<version>VERSION</version>",
		command: func(dir, example string) *exec.Cmd {
			// The better compiler of the Java machine costs a short run more than it saves.
			return exec.Command("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
				"-cp", filepath.Join(dir, "classes")+":"+filepath.Join(dir, "lib", "*"), example+".Main")
		}},
	{name: "csharp", title: "C#", file: "Program.cs", runner: "dotnet", pin: "Directory.Build.props",
		pinned: `Include="Azure.Messaging.ServiceBus" Version="VERSION"`, needs: "dotnet",
		command: func(dir, example string) *exec.Cmd {
			return exec.Command(filepath.Join(dir, "bin", example, "release", example))
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

// install installs the library, or for Go and C# builds the programs, and returns the directory that has it.
func (l language) install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	switch l.name {
	case "go":
		// The linker is quicker without cgo.
		build(t, []string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/", "./...")
		return dir
	case "csharp":
		build(t, []string{"DOTNET_CLI_TELEMETRY_OPTOUT=1", "DOTNET_NOLOGO=1"}, "dotnet", "build", "examples.slnx",
			"--nologo", "--verbosity", "quiet", "--configuration", "Release", "--artifacts-path", dir)
		return dir
	case "java":
		compileJava(t, l.library(t), dir)
		return dir
	}
	return l.library(t)
}

// build runs a command in the directory of the examples.
func build(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the examples: %v\n%s", err, out)
	}
}

// library returns the directory that has the library, as the scenarios install it.
func (l language) library(t *testing.T) string {
	t.Helper()
	dir, err := languages.Installed(t.Context(), "..", l.runner)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// compileJava compiles the programs to dir, which has their library then, too.
func compileJava(t *testing.T, library, dir string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "*", "Main.java"))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range sources {
		sources[i], _ = filepath.Rel(root, s)
	}
	if err := os.Symlink(filepath.Join(library, "lib"), filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	args := []string{"--release", "17", "-cp", filepath.Join(dir, "lib", "*"), "-d", filepath.Join(dir, "classes")}
	build(t, nil, "javac", append(args, sources...)...)
}
