package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// S-87: the documentation says, where its list of pages leads, that session handlers and timed accepts
// have no place on a reply queue, and what to do instead.
func TestTheDocumentationWarnsOfHandlersOnReplyQueues(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if !strings.Contains(read("README.md"), "](patterns.md)") {
		t.Error("docs/README.md does not lead to docs/patterns.md")
	}
	_, section, ok := strings.Cut(read("patterns.md"), "\n## Request and reply\n")
	if !ok {
		t.Fatal("docs/patterns.md has no section of request and reply")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, want := range []string{
		"**Accept the reply session before the request is sent.**", "**Do not run a session handler on a reply queue.**",
		"**Do not accept the next session with a time-out on a reply queue**",
		"ServiceBusSessionProcessor", "AcceptNextSessionForQueue", "acceptNextSession", "NEXT_AVAILABLE_SESSION",
	} {
		if !strings.Contains(section, want) {
			t.Errorf("docs/patterns.md, Request and reply, does not say %q", want)
		}
	}
}

// Each page of docs is in the list of pages, and each link of docs/llms.txt, which no other check reads, leads to a page.
func TestEachPageIsInTheListOfPages(t *testing.T) {
	list, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("found %d pages: %v", len(pages), err)
	}
	for _, p := range pages {
		if name := filepath.Base(p); name != "README.md" && !strings.Contains(string(list), "]("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
	text, err := os.ReadFile("../../docs/llms.txt")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1)
	if len(links) < 20 {
		t.Errorf("docs/llms.txt has %d links", len(links))
	}
	for _, l := range links {
		if _, err := os.Stat("../../docs/" + l[1]); err != nil {
			t.Errorf("docs/llms.txt: %v", err)
		}
	}
}
