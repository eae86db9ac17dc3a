package examples

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// firsts are the programs of README.md, by the name of a language and of its fence.
var firsts = map[string]struct{ fence, file, prints string }{
	"go":         {"go", "main.go", "hello from Go"},
	"python":     {"python", "hello.py", "hello from Python"},
	"javascript": {"js", "hello.mjs", "hello from JavaScript"},
	"java":       {"java", "Hello.java", "hello from Java"},
}

// The first program that a reader copies from README.md runs as it stands, against the node that the page starts and the
// connection string that the page names.
func TestTheFirstProgramsOfTheReadmeRun(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`(?m)^    export SERVICEBUS_CONNECTION_STRING='(Endpoint=sb://localhost;[^']*)'$`).FindStringSubmatch(string(text))
	if variable == nil {
		t.Fatal("README.md names no connection string")
	}
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	amqp, _ := n.Doors()
	_, port, _ := strings.Cut(amqp, ":")
	connection := strings.Replace(variable[1], "localhost", "localhost:"+port, 1)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	create := exec.CommandContext(t.Context(), bin, "queue", "create", "orders")
	create.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+connection)
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, l := range all {
		first, ok := firsts[l.name]
		if !ok {
			continue // no machine of the project compiles C#
		}
		t.Run(l.title, func(t *testing.T) {
			blocks := regexp.MustCompile("(?s)```"+first.fence+"\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
			if len(blocks) != 1 {
				t.Fatalf("README.md has %d programs in %s, want one", len(blocks), l.title)
			}
			if !strings.Contains(string(text), "`"+first.file+"`") {
				t.Errorf("README.md does not say that the program is %s", first.file)
			}
			dir := t.TempDir()
			program := filepath.Join(dir, first.file)
			if err := os.WriteFile(program, []byte(blocks[0][1]), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), programLimit)
			defer cancel()
			cmd, err := l.first(ctx, t, dir, program)
			if err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(cmd.Environ(), "SERVICEBUS_CONNECTION_STRING="+connection)
			var out, said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &said
			if err := cmd.Run(); err != nil || strings.TrimSpace(out.String()) != first.prints {
				t.Errorf("the program ended with %v and printed %q, want %q; it said:\n%s", err, &out, first.prints, &said)
			}
		})
	}
}

// first returns the command that runs a program of README.md, with the library of the language.
func (l language) first(ctx context.Context, t *testing.T, dir, program string) (*exec.Cmd, error) {
	t.Helper()
	switch l.name {
	case "go":
		// The module of the examples has the library: an overlay puts the program into it.
		place, err := filepath.Abs(filepath.Join(root, "first", "main.go"))
		if err != nil {
			return nil, err
		}
		overlay := filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, place, program), 0o600); err != nil {
			return nil, err
		}
		build(t, []string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", filepath.Join(dir, "first"), "./first")
		return exec.CommandContext(ctx, filepath.Join(dir, "first")), nil
	case "python":
		return exec.CommandContext(ctx, filepath.Join(l.library(t), "venv", "bin", "python"), "-B", program), nil
	case "javascript":
		// Modules of the form of the page look for libraries beside the program, and not in NODE_PATH.
		return exec.CommandContext(ctx, "node", program), os.Symlink(filepath.Join(l.library(t), "node_modules"), filepath.Join(dir, "node_modules"))
	}
	return exec.CommandContext(ctx, "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(l.library(t), "lib", "*"), program), nil
}
