package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Each command has a page with its flags, and nothing in a text steers the formatter.
func TestEachCommandHasAManualPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	out, code := execute(t, newRoot(), "", "man", "--dir", dir)
	all := documented(newRoot())
	if code != 0 || !strings.HasPrefix(out, "wrote ") {
		t.Fatalf("%d %s", code, out)
	}
	written, err := os.ReadDir(dir)
	if err != nil || len(written) != len(all) || len(all) < 80 {
		t.Fatalf("%d pages for %d commands, %v", len(written), len(all), err)
	}
	request := regexp.MustCompile(`^(\.(TH|SH|PP|TP|RS|RE|nf|fi|B|BR)\s|\\fB|[^.'])`)
	checker, _ := exec.LookPath("groff")
	for _, c := range all {
		text, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		page := string(text)
		for _, section := range []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXIT STATUS", ".SH SEE ALSO"} {
			if !strings.Contains(page, section+"\n") {
				t.Errorf("%s has no %s", manName(c), section)
			}
		}
		for line := range strings.Lines(page) {
			if !request.MatchString(line) {
				t.Errorf("%s: %q steers the formatter", manName(c), line)
			}
		}
		if checker == "" {
			continue
		}
		format := exec.CommandContext(t.Context(), checker, "-man", "-Tutf8", "-ww", "-z")
		format.Stdin = strings.NewReader(page)
		if said, err := format.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v %s", manName(c), err, said)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "busbar-queue-purge.1"))
	for _, want := range []string{`.TH "BUSBAR\-QUEUE\-PURGE" "1"`, `busbar\-queue\-purge \- Delete the messages that wait in a queue`,
		`\fB\-\-rate\fR \fIuint\fR`, `\fB\-o\fR, \fB\-\-output\fR \fIstring\fR`, ".BR busbar\\-queue (1)"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the page of queue purge has no %s, %v", want, err)
		}
	}
	if _, code := execute(t, newRoot(), "", "man"); code != exit.Usage {
		t.Errorf("without a directory: %d", code)
	}
	for text, want := range map[string]string{".hidden": `\&.hidden`, `a\b 'c' "d"`: `a\eb \(aqc\(aq \(dqd\(dq`, "--x": `\-\-x`} {
		if got := roffLine(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
