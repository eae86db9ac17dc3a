package rest

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// changing are the parts of an answer that no two answers share.
var changing = regexp.MustCompile(
	`TrackingId:[0-9a-f-]{36}_G0|uuid:[0-9a-f-]{36}|<(Primary|Secondary)Key>[A-Za-z0-9+/]{43}=<`)

const dashes = "----\n"

// Each file holds the conversation of one client: requests as the SDK of its name writes them and
// the answers. The files show what the wire looks like; read the difference when you rewrite them.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h := newHouse(t)
			h.counts = fsm.EntityCounts{
				Active: 3, Scheduled: 1, DeadLetter: 2, SizeBytes: 1234, AccessedAt: 1767323045000,
			}
			got := h.converse(t, string(old))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(old) {
				t.Errorf("the answers differ; got\n%s", firstDifference(got, string(old)))
			}
		})
	}
}

// converse sends the requests of a file and returns it with the present answers.
func (h *house) converse(t *testing.T, file string) string {
	t.Helper()
	var out strings.Builder
	parts := strings.Split(file, dashes)
	for i := 0; i < len(parts); i += 2 {
		if strings.TrimSpace(parts[i]) == "" {
			continue
		}
		out.WriteString(parts[i] + dashes)
		out.WriteString(h.exchange(t, parts[i]) + "\n")
		if i+2 < len(parts) {
			out.WriteString(dashes)
		}
	}
	return out.String()
}

func (h *house) exchange(t *testing.T, text string) string {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
		strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%v in %q", err, head)
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", token(root, rootKey, "https://"+r.Host+"/"))
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	var out strings.Builder
	out.WriteString(http.StatusText(w.Code) + "\n")
	var names []string
	for name := range w.Header() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name != "Content-Length" {
			out.WriteString(name + ": " + w.Header().Get(name) + "\n")
		}
	}
	out.WriteString("\n" + indent(w.Body.Bytes()))
	return changing.ReplaceAllStringFunc(out.String(), func(found string) string {
		for _, p := range []string{"TrackingId:", "uuid:", "<PrimaryKey>", "<SecondaryKey>"} {
			if strings.HasPrefix(found, p) {
				return p + "*" + found[len(found)-1:][:strings.Count(p, "<")]
			}
		}
		return found
	})
}

// indent starts a line at every element, so that differences can be read.
func indent(body []byte) string {
	return string(bytes.ReplaceAll(body, []byte("><"), []byte(">\n<")))
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "one is longer than the other"
}
