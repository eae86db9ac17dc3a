package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// blockLimit bounds the commands of one block of a page.
const blockLimit = time.Minute

// page is a page with blocks of commands that a reader can type one after the other.
type page struct {
	name   string
	blocks []block
}

// block stands behind the comment <!-- run -->, or <!-- run: CODE --> for one whose last command ends with that exit code. A
// block of text behind it has lines that the commands print.
type block struct {
	line     int
	commands string
	code     int
	prints   []string
}

var runMarker = regexp.MustCompile(`^<!-- run(?:: (\d+))? -->$`)

// blocksOf reads the blocks of a page. A comment that is not quite right is an error.
func blocksOf(text string) (all []block, err error) {
	lines := strings.Split(text, "\n")
	fenced := func(i int, language string) (body []string, end int, ok bool) {
		if i >= len(lines) || lines[i] != "```"+language {
			return nil, i, false
		}
		for end = i + 1; end < len(lines); end++ {
			if lines[end] == "```" {
				return lines[i+1 : end], end, true
			}
		}
		return nil, i, false
	}
	for i := 0; i < len(lines); i++ {
		m := runMarker.FindStringSubmatch(lines[i])
		if m == nil {
			if strings.HasPrefix(lines[i], "<!-- run") {
				return nil, fmt.Errorf("line %d is neither <!-- run --> nor <!-- run: CODE -->", i+1)
			}
			continue
		}
		b := block{line: i + 1}
		b.code, _ = strconv.Atoi(m[1])
		body, end, ok := fenced(i+1, "sh")
		if !ok {
			return nil, fmt.Errorf("line %d: no block of sh is behind it", i+1)
		}
		b.commands = strings.Join(body, "\n")
		if prints, last, ok := fenced(end+2, "text"); ok && lines[end+1] == "" {
			b.prints, end = prints, last
		}
		all, i = append(all, b), end
	}
	return all, nil
}

// missing returns the first line that output does not have, behind those before it. Blanks count as one, and … stands for
// any part of a line.
func missing(output string, want []string) (line string, ok bool) {
	have := strings.Split(output, "\n")
	next := 0
	for _, w := range want {
		fields := strings.Fields(w)
		if len(fields) == 0 {
			continue
		}
		for i := range fields {
			fields[i] = strings.ReplaceAll(regexp.QuoteMeta(fields[i]), "…", ".*")
		}
		pattern := regexp.MustCompile(`^\s*` + strings.Join(fields, `\s+`) + `\s*$`)
		for next < len(have) && !pattern.MatchString(have[next]) {
			next++
		}
		if next == len(have) {
			return w, true
		}
		next++
	}
	return "", false
}

// run runs the blocks one after the other in one directory, as a reader does, against a development node of their own.
func (p page) run(t *testing.T) {
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := reader(dir, filepath.Dir(bin), "BUSBAR_OPS=http://"+n.Ops, "SERVICEBUS_CONNECTION_STRING="+n.ConnectionString(false), "PAGES_DATA="+n.Dir)
	for _, b := range p.blocks {
		b.run(t, p.name, dir, env)
	}
}

// reader is the environment of a reader whose home is dir and whose programs are in bin.
func reader(dir, bin string, more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "BUSBAR_") || strings.HasPrefix(v, "SERVICEBUS_")
	})
	return append(env, append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, more...)...)
}

// run types the commands of a block in dir, and holds them to what the page says of them.
func (b block) run(t *testing.T, page, dir string, env []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), blockLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.commands)
	cmd.Dir, cmd.Env = dir, env
	// A block may leave a program behind that reads or writes: all of them go with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("%s:%d: %v\n%s", page, b.line, err, &out)
	}
	if code != b.code {
		t.Fatalf("%s:%d: the block ended with %d, want %d:\n%s", page, b.line, code, b.code, &out)
	}
	if line, absent := missing(out.String(), b.prints); absent {
		t.Errorf("%s:%d: the page says that this is printed:\n%s\nThe commands printed:\n%s", page, b.line, line, &out)
	}
}

// A reader who types the commands of a page, from its top to its end, sees what the page says.
func TestCommandsOfThePages(t *testing.T) {
	root := filepath.Join("..", "..", "..", "docs")
	var pages []page
	for _, glob := range []string{"*.md", "guide/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := blocksOf(string(text))
			if err != nil {
				t.Errorf("%s: %v", f, err)
			}
			if len(blocks) > 0 {
				pages = append(pages, page{strings.TrimPrefix(f, "../../../"), blocks})
			}
		}
	}
	if len(pages) < 4 {
		t.Errorf("%d pages have commands that are run, want 4 at least", len(pages))
	}
	for _, p := range pages {
		t.Run(filepath.Base(p.name), func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}

func TestBlocksOfAPage(t *testing.T) {
	got, err := blocksOf("x\n<!-- run: 3 -->\n```sh\na\nb\n```\n\n```text\none  …\n```\n<!-- run -->\n```sh\nc\n```\n")
	if err != nil || len(got) != 2 || got[0].commands != "a\nb" || got[0].code != 3 || got[0].prints[0] != "one  …" ||
		got[1].commands != "c" || got[1].code != 0 || got[1].prints != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"<!-- run -->\n\n```sh\na\n```\n", "<!-- run: x -->\n```sh\na\n```\n", "<!-- run -->\n```sh\na\n"} {
		if _, err := blocksOf(bad); err == nil {
			t.Errorf("%q is no fault", bad)
		}
	}
	output := "NAME   ACTIVE\norders 3\nlast\n"
	for _, want := range [][]string{{"NAME ACTIVE", "orders …"}, {"…last"}, {"", "last"}} {
		if line, absent := missing(output, want); absent {
			t.Errorf("%q is missing of %q", line, want)
		}
	}
	for _, want := range [][]string{{"orders"}, {"orders 3", "NAME ACTIVE"}, {"last", "last"}} {
		if _, absent := missing(output, want); !absent {
			t.Errorf("%q is not missing", want)
		}
	}
}
