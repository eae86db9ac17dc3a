package console

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// A browser finds the page at "/", and programs find there what they found before.
func TestTheRootIsForBrowsersAndPrograms(t *testing.T) {
	d := newDesk(t)
	for name, c := range map[string]struct {
		headers []string
		path    string
		page    bool
	}{
		"a browser":                 {[]string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}, "/", true},
		"curl":                      {[]string{"Accept", "*/*"}, "/", false},
		"an SDK":                    {[]string{"Accept", "application/atom+xml"}, "/", false},
		"no media type":             {nil, "/", false},
		"a browser with a token":    {[]string{"Accept", "text/html", "Authorization", "SharedAccessSignature x"}, "/", false},
		"a browser with a query":    {[]string{"Accept", "text/html"}, "/?api-version=2021-05", false},
		"a browser at an entity":    {[]string{"Accept", "text/html"}, "/orders", false},
		"a browser at a known path": {[]string{"Accept", "text/html"}, "/metrics", false},
	} {
		w := d.do(request("GET", c.path, "", c.headers...))
		isPage := w.Code == http.StatusOK && strings.Contains(w.Body.String(), "<bb-app>")
		if isPage != c.page || !isPage && w.Code != http.StatusTeapot {
			t.Errorf("%s: %d %.80s", name, w.Code, w.Body)
		}
	}
	if w := d.do(request("POST", "/", "", "Accept", "text/html")); w.Code != http.StatusTeapot {
		t.Errorf("a POST: %d", w.Code)
	}
}

// Every answer of the console forbids what a page must not do.
func TestEveryAnswerIsProtected(t *testing.T) {
	d := newDesk(t)
	cookie := d.signIn("root", rootKey, "")
	for _, path := range []string{"/", pagesPrefix + "app.js", pagesPrefix + "none.js", sessionPath, eventsPath + "?none", Prefix + "none",
		portPrefix + "/api/cluster", portPrefix + "/metrics"} {
		r := with(request("GET", path, "", "Accept", "text/html"), cookie)
		if strings.HasPrefix(path, eventsPath) {
			r.Method = "HEAD" // which has no stream
		}
		h := d.do(r).Header()
		if csp := h.Get("Content-Security-Policy"); csp != contentPolicy || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

// A browser keeps a file until it changes, and hears that it has not.
func TestFilesAreAskedForAgain(t *testing.T) {
	d := newDesk(t)
	for name, kind := range map[string]string{"app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml", "index.html": "text/html"} {
		w := d.do(request("GET", pagesPrefix+name, ""))
		tag := w.Header().Get("ETag")
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || tag == "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if w = d.do(request("GET", pagesPrefix+name, "", "If-None-Match", tag)); w.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", name, w.Code)
		}
	}
	for path, want := range map[string]int{"none.js": 404, "../console.go": 404, "": 404} {
		if w := d.do(request("GET", pagesPrefix+path, "")); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := d.do(request("POST", pagesPrefix+"app.js", "")); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", w.Code)
	}
}

// No file of the console is longer than a person can hold in the head, names another host, or has a script or a style
// inside a page, which the policy forbids.
func TestFilesAreOurOwnAndShort(t *testing.T) {
	entries, err := os.ReadDir("pages")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := regexp.MustCompile(`https?://[^\s"'<)]+`)
	spaces := regexp.MustCompile(`^http://(www\.w3\.org|schemas\.microsoft\.com)/`) // names of XML, which nobody asks
	inside := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+="|javascript:|innerHTML|eval\(|new Function`)
	for _, e := range entries {
		text, err := os.ReadFile("pages/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > 500 {
			t.Errorf("%s: %d lines, at most 500", e.Name(), n)
		}
		for _, found := range elsewhere.FindAllString(string(text), -1) {
			if !spaces.MatchString(found) {
				t.Errorf("%s names another host: %s", e.Name(), found)
			}
		}
		if found := inside.FindString(string(text)); found != "" {
			t.Errorf("%s: %q", e.Name(), found)
		}
	}
}
