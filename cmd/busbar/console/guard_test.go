package console

import (
	"net/http"
	"testing"
)

// A page of another site can neither sign in, nor read, nor change anything, even if its own name resolves to this node.
func TestOtherSitesAreRefused(t *testing.T) {
	signIn := `{"policy":"root","key":"` + rootKey + `"}`
	for name, c := range map[string]struct {
		method, path string
		headers      []string
		want         int
	}{
		"the page itself":                  {"POST", sessionPath, nil, 200},
		"in other capitals":                {"POST", sessionPath, []string{"Origin", "http://BUSBAR.local:5300"}, 200},
		"a browser that says the same":     {"POST", sessionPath, []string{"Origin", "", "Sec-Fetch-Site", "same-origin"}, 200},
		"another origin":                   {"POST", sessionPath, []string{"Origin", "http://evil.example"}, 403},
		"another port":                     {"POST", sessionPath, []string{"Origin", "http://busbar.local:80"}, 403},
		"no origin":                        {"POST", sessionPath, []string{"Origin", ""}, 403},
		"an origin that is none":           {"POST", sessionPath, []string{"Origin", "null"}, 403},
		"another scheme":                   {"POST", sessionPath, []string{"Origin", "ftp://" + home}, 403},
		"another site":                     {"POST", sessionPath, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another host of the site":         {"POST", sessionPath, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"a name that was bound anew":       {"POST", sessionPath, []string{"Host", "evil.example", "Origin", "http://evil.example"}, 403},
		"reading under such a name":        {"GET", sessionPath, []string{"Host", "evil.example", "Origin", ""}, 403},
		"reading a page under it":          {"GET", pagesPrefix + "app.js", []string{"Host", "evil.example", "Origin", ""}, 403},
		"reading from another site":        {"GET", sessionPath, []string{"Sec-Fetch-Site", "cross-site", "Origin", ""}, 403},
		"a link from another site":         {"GET", pagesPrefix + "index.html", []string{"Sec-Fetch-Site", "cross-site", "Origin", ""}, 200},
		"a change that is sent on":         {"POST", portPrefix + "/api/cluster/drain", []string{"Origin", "http://evil.example"}, 403},
		"a deletion without an origin":     {"DELETE", portPrefix + "/orders", []string{"Origin", ""}, 403},
		"a sign-out from another site":     {"DELETE", sessionPath, []string{"Origin", "http://evil.example"}, 403},
		"events for another site":          {"GET", eventsPath, []string{"Sec-Fetch-Site", "cross-site", "Origin", ""}, 403},
		"a read that names another origin": {"GET", sessionPath, []string{"Origin", "http://evil.example"}, 403},
	} {
		d := newDesk(t)
		body := ""
		if c.path == sessionPath && c.method == http.MethodPost {
			body = signIn
		}
		w := d.do(request(c.method, c.path, body, c.headers...))
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, c.want, w.Body)
		}
		if c.want == 403 && len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: a cookie is set", name)
		}
		if r, _ := d.last(); r != nil {
			t.Errorf("%s: the port was asked %s", name, r.URL)
		}
	}
	d := newDesk(t)
	twice := request("POST", sessionPath, signIn)
	twice.Header.Add("Origin", "http://evil.example")
	reads := request("GET", sessionPath, "")
	reads.Header.Add("Origin", "http://evil.example")
	plain := secure(request("POST", sessionPath, signIn))
	plain.Header.Set("Origin", "http://"+home)
	for name, r := range map[string]*http.Request{"two origins": twice, "a read with two origins": reads, "a plain page under TLS": plain} {
		if w := d.do(r); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}
