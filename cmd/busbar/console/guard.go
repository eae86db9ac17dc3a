package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// contentPolicy lets a page load files of this node, and speak to this node. There is no script and no style inside a page.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// protect sets what every answer of the console has.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

// sentence is an error that a page shows as it is.
type sentence string

func (s sentence) Error() string { return string(s) }

func sentencef(format string, args ...any) error { return sentence(fmt.Sprintf(format, args...)) }

const errElsewhere = sentence("The request comes from another site.")

// check refuses what a page of another site can send. Such a page may have its own name resolve to this node (DNS
// rebinding), so the host must be none of a stranger. A change must say that a page of this node sent it: browsers do, by
// Origin or Sec-Fetch-Site, and a page cannot set either.
func (c *Console) check(r *http.Request) error {
	if !c.deps.Own(r.Host) {
		return sentencef("Host %.100q is no name of this node. Add it to allowed-hosts in the configuration if it is.", r.Host)
	}
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Values("Origin")
	if len(origin) > 1 || len(r.Header.Values("Sec-Fetch-Site")) > 1 {
		return errElsewhere
	}
	same := site == "same-origin"
	if len(origin) == 1 {
		u, err := url.Parse(origin[0])
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) || u.Scheme != "http" && u.Scheme != "https" ||
			r.TLS != nil && u.Scheme != "https" {
			return errElsewhere
		}
		same = true
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); r.URL.Path == answerPath && mode != "" && mode != "navigate" {
		return errElsewhere // the answer of a provider is a page that somebody goes to, and no picture of another page
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case site == "cross-site" || site == "same-site":
		// A link from elsewhere may open the page, which holds nothing, and a provider sends its answer, which is
		// judged by its state. Nothing else may be read.
		if !reads || r.URL.Path != "/" && r.URL.Path != answerPath && !strings.HasPrefix(r.URL.Path, pagesPrefix) {
			return errElsewhere
		}
	case !reads && !same:
		return errElsewhere
	}
	return nil
}

// refuse answers with a sentence for people.
func refuse(w http.ResponseWriter, status int, sentence string) {
	answer(w, status, map[string]string{"error": sentence})
}

// signedOut tells the page that its session is over, which another answer with 401 does not.
func signedOut(w http.ResponseWriter) {
	w.Header().Set("Busbar-Console", "signed-out")
	refuse(w, http.StatusUnauthorized, "Nobody is signed in, or the session is over.")
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the browser may be gone
}
