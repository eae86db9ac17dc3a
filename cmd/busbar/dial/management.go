package dial

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const (
	apiVersion    = "2021-05"
	maxAtomBytes  = 16 << 20 // a full page of descriptions is far below
	AtomEntryType = "application/atom+xml;type=entry;charset=utf-8"
)

// Management speaks the ATOM API.
type Management struct {
	Target *Target
	HTTP   *http.Client
	Limit  time.Duration
}

// NewManagement speaks to the broker of t; limit bounds each request.
func NewManagement(t *Target, limit time.Duration) *Management {
	transport := &http.Transport{TLSClientConfig: t.tlsConfig(), Proxy: nil}
	return &Management{Target: t, HTTP: &http.Client{Transport: transport}, Limit: limit}
}

// Do sends one request and returns the body of a success.
func (m *Management) Do(ctx context.Context, what, method, path, query string, body []byte) ([]byte, error) {
	return m.request(ctx, what, method, path, query, body, false)
}

// request is Do; update marks a change of what is there.
func (m *Management) request(ctx context.Context, what, method, path, query string, body []byte, update bool) ([]byte, error) {
	if strings.Contains(path, "%") { // no token names such a path
		return nil, exit.FromHTTP(what, http.StatusBadRequest, noName(path))
	}
	ctx, cancel := context.WithTimeout(ctx, m.Limit)
	defer cancel()
	u := m.Target.URL("http") + escapedPath(path) + "?api-version=" + apiVersion + query
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	req.Header.Set("Authorization", m.Target.Token(path, time.Now()))
	if update {
		req.Header.Set("If-Match", "*")
	}
	if body != nil {
		req.Header.Set("Content-Type", AtomEntryType)
		// Its destination may be anywhere else in the namespace.
		everywhere := m.Target.Token("", time.Now())
		req.Header.Set("ServiceBusSupplementaryAuthorization", everywhere)
		req.Header.Set("ServiceBusDlqSupplementaryAuthorization", everywhere)
	}
	res, err := m.HTTP.Do(req)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) { // its text has the URL; the error inside names the address
			err = of.Err
		}
		return nil, m.Target.reached(Failure(what, err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAtomBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, m.refused(what, method, path, res.StatusCode, errorDetail(text))
	}
	return text, nil
}

// existsCode stands in the detail of a refusal because the name is taken.
const existsCode = "SubCode=40900"

// namesCode is in the detail of a refusal because of a letter that no name has.
const namesCode = "contains character(s) that is not allowed"

func noName(path string) string {
	return fmt.Sprintf("%q is no name: a name has letters, digits, periods, hyphens, underscores and slashes", path)
}

// holder is the topic of the path of a subscription, or the subscription of a rule, "" for another path.
func holder(path string) string {
	for _, of := range []string{"/Rules/", "/Subscriptions/"} {
		if i := strings.LastIndex(path, of); i > 0 {
			return path[:i]
		}
	}
	return ""
}

// refused says in words of the command line what the service says in its own.
func (m *Management) refused(what, method, path string, status int, detail string) error {
	detail, id := shortened(detail)
	switch {
	case status == http.StatusConflict && strings.Contains(detail, existsCode), status == http.StatusConflict &&
		strings.Contains(detail, "already exists"):
		detail = path + " exists already"
	case method != http.MethodPut && (status == http.StatusNotFound || status == http.StatusGone):
		status, detail = http.StatusNotFound, "there is no "+path
	case status == http.StatusNotFound && holder(path) != "":
		detail = "there is no " + holder(path)
	case status == http.StatusBadRequest && strings.Contains(detail, namesCode):
		detail = noName(path)
	case status == http.StatusUnauthorized && m.Target.KeyName != "":
		detail += " (policy " + m.Target.KeyName + ")"
	}
	detail = withCure(detail)
	if id != "" {
		detail += " (tracking id " + id + ")"
	}
	return exit.FromHTTP(what, status, detail)
}

var (
	// moreToKnow is a pointer to the pages of Azure Service Bus, which say nothing of this broker.
	moreToKnow = regexp.MustCompile(`\s*To know more visit \S*`)
	tracking   = regexp.MustCompile(`\s*\.?\s*TrackingId:([^,\s]+).*$`)
)

// shortened takes the tracking id and what is of no use at a terminal out of a text of the service.
func shortened(text string) (short, id string) {
	text = moreToKnow.ReplaceAllString(text, "")
	if m := tracking.FindStringSubmatch(text); m != nil {
		id, text = m[1], text[:len(text)-len(m[0])]
	}
	return strings.TrimRight(strings.TrimSpace(text), ". "), id
}

// errorDetail finds the sentence in an error document.
func errorDetail(text []byte) string {
	var doc struct {
		Detail string `xml:"Detail"`
	}
	if xml.Unmarshal(text, &doc) == nil && doc.Detail != "" {
		return strings.TrimSpace(doc.Detail)
	}
	const most = 300
	return strings.TrimSpace(string(text[:min(len(text), most)]))
}
