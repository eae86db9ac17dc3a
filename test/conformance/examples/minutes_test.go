package examples

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// greetingLimit bounds the start of a node on a busy machine, and its end.
const greetingLimit = 30 * time.Second

// greeting is what a development node prints when it is ready: its lines by their names, and the command that it advises.
type greeting struct {
	ready  string
	lines  map[string]string
	advice string
}

// greet reads the greeting from the output of a node.
func greet(r io.Reader) (g greeting, ok bool) {
	g.lines = map[string]string{}
	named := regexp.MustCompile(`^(\w+): +(\S.*)$`)
	in := bufio.NewScanner(r)
	for in.Scan() {
		line := in.Text()
		if strings.HasPrefix(line, "Busbar ") && strings.Contains(line, "is ready after") {
			g.ready = line
		}
		if m := named.FindStringSubmatch(line); m != nil && g.ready != "" {
			g.lines[m[1]] = m[2]
		}
		if _, command, found := strings.Cut(line, "as SERVICEBUS_CONNECTION_STRING: "); found && g.ready != "" {
			g.advice = command
			return g, true
		}
	}
	return g, false
}

// newcomer starts a development node as README.md does, but on free ports and without data, and returns its greeting. The
// node is stopped as by Ctrl-C at the end of the test, and must end well and leave nothing.
func newcomer(t *testing.T, bin, home string) greeting {
	t.Helper()
	cmd := exec.Command(bin, "dev", "--ephemeral", "--amqp-listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = home, reader(home, filepath.Dir(bin), "TMPDIR="+home)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	late := time.AfterFunc(greetingLimit, func() { _ = cmd.Process.Kill() })
	g, ok := greet(r)
	late.Stop()
	rest := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(r)
		rest <- text
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		late := time.AfterFunc(greetingLimit, func() { _ = cmd.Process.Kill() })
		text := <-rest
		err := cmd.Wait()
		late.Stop()
		if err != nil {
			t.Errorf("after Ctrl-C the node ended with %v:\n%s", err, text)
		}
		left, err := filepath.Glob(filepath.Join(home, "busbar-ephemeral-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("the node left %v behind, %v", left, err)
		}
	})
	if !ok {
		t.Fatalf("the node has greeted nobody: %+v", g)
	}
	return g
}

// commandsOf returns the commands of README.md that stand behind a line.
func commandsOf(t *testing.T, text, behind string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+behind+"\n\n")
	block, _, closed := strings.Cut(rest, "\n\n")
	if !ok || !closed || !strings.HasPrefix(block, "    ") {
		t.Fatalf("README.md has no commands behind %q", behind)
	}
	return regexp.MustCompile(`(?m)^ {4}`).ReplaceAllString(block, "")
}

// The path of a newcomer, in the words of README.md and first-steps.md: the start and its greeting, a queue, a message in and
// out, the console, the first program with the string of the greeting, and a dead letter that is looked at and sent again.
func TestTheFirstFifteenMinutes(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := os.ReadFile("../../../docs/guide/first-steps.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	home, began := t.TempDir(), time.Now()
	step := func(name string) {
		t.Logf("%-10s %v", name, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	g := newcomer(t, bin, home)
	step("greeting")
	port := regexp.MustCompile(`sb://localhost:\d+`)
	connection := regexp.MustCompile(`'(Endpoint=[^']*)'`).FindStringSubmatch(commandsOf(t, string(readme), "the official emulator:"))
	if connection == nil || port.ReplaceAllString(g.lines["plain"], "sb://localhost") != connection[1] {
		t.Errorf("the node greets with %q, README.md has %q", g.lines["plain"], connection)
	}
	if !strings.HasPrefix(g.lines["TLS"], "Endpoint=sb://localhost:") || !strings.HasPrefix(g.lines["data"], "removed") {
		t.Errorf("the greeting is %+v", g)
	}

	commands := commandsOf(t, string(readme), "In another terminal, in the same directory:")
	first, _, _ := strings.Cut(commands, "\n")
	if want := strings.Replace(first, "bin/busbar", bin, 1); g.advice != want && g.advice != strings.Replace(first, "bin/busbar", "busbar", 1) {
		t.Errorf("the node advises %q, README.md begins with %q", g.advice, first)
	}
	if err := os.Symlink(filepath.Dir(bin), filepath.Join(home, "bin")); err != nil {
		t.Fatal(err)
	}
	env := reader(home, filepath.Dir(bin), "BUSBAR_OPS="+g.lines["operations"], "SERVICEBUS_CONNECTION_STRING="+g.lines["plain"])
	block{commands: commands, prints: []string{"orders Active …", "sent 1 to orders", "… hello"}}.run(t, "README.md", home, env)
	step("message")

	address, _, _ := strings.Cut(g.lines["console"], " ")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html") // as browsers do
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || !bytes.Contains(page, []byte("<title>Busbar")) {
		t.Errorf("the console answers %s, %v:\n%s", res.Status, err, page)
	}
	step("console")

	program := filepath.Join(t.TempDir(), "main.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```\n").FindStringSubmatch(string(readme))
	if blocks == nil {
		t.Fatal("README.md has no program in Go")
	}
	if err := os.WriteFile(program, []byte(blocks[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), programLimit)
	defer cancel()
	cmd, err := all[0].first(ctx, t, filepath.Dir(program), program)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != firsts["go"].prints {
		t.Errorf("the first program printed %q, %v", out, err)
	}
	step("program")

	_, section, _ := strings.Cut(string(steps), "\n## A message that fails\n")
	section, _, _ = strings.Cut(section, "\n## ")
	fails, err := blocksOf(section)
	if err != nil || len(fails) != 1 || len(fails[0].prints) == 0 {
		t.Fatalf("first-steps.md has %d blocks about a message that fails, %v", len(fails), err)
	}
	fails[0].run(t, "first-steps.md", home, env)
	step("dead letter")
}

func TestAGreeting(t *testing.T) {
	text := "plain: too early\nBusbar 1 is ready after 5 ms\n\nplain:      a\noperations: b\n\nTry it, with the first as SERVICEBUS_CONNECTION_STRING: c d\nnot read"
	g, ok := greet(strings.NewReader(text))
	if !ok || g.ready != "Busbar 1 is ready after 5 ms" || g.lines["plain"] != "a" || g.lines["operations"] != "b" || g.advice != "c d" {
		t.Errorf("got %+v, %v", g, ok)
	}
	if g, ok := greet(strings.NewReader("plain: a\nTry it, as SERVICEBUS_CONNECTION_STRING: c\n")); ok {
		t.Errorf("a greeting of a node that is not ready: %+v", g)
	}
}
