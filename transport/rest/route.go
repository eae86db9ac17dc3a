package rest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm/catalog"
)

type routeKind uint8

const (
	routeRoot routeKind = iota
	routeEntity
	routeQueues
	routeTopics
	routeNamespace
	routeSubscriptions // a topic's list, or one subscription
	routeRules         // a subscription's list, or one rule
	routeUnknown       // a reserved path that nothing answers
)

// route is where a request's path leads.
type route struct {
	kind routeKind
	name string // of the entity or topic, as the client spelt it
	path string // the decoded path without slashes around it: what a claim must cover

	subscription, rule string // "" in a list

	words [2]string // how the client spells "Subscriptions" and "Rules"
}

// idPath is the path in the id of an entity: its name as it was created, which JavaScript reads from the id. The
// words between are as the request has them, as from the service.
func (at *route) idPath(name string) string {
	topic, subscription, ok := catalog.SplitSubscription(name)
	if !ok {
		return name
	}
	return topic + "/" + at.words[0] + "/" + subscription
}

// rulesPath is that of a subscription's rules.
func (at *route) rulesPath(subscription string) string {
	return at.idPath(subscription) + "/" + at.words[1]
}

// maxNameChars is the length of a queue's or topic's name, slashes included.
const maxNameChars = 260

// parseRoute reads a decoded path. Literals have any case, one trailing slash is tolerated; a
// client may have encoded the slashes of a name, so they are split after decoding.
func parseRoute(path string) route {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	at := route{kind: routeEntity, name: path, path: path}
	if path == "" {
		at.kind = routeRoot
		return at
	}
	segments := strings.Split(path, "/")
	if strings.HasPrefix(path, "$") {
		at.kind = reserved(segments)
		return at
	}
	middle := -1 // the last "subscriptions" that something precedes
	for i := len(segments) - 1; i > 0; i-- {
		if strings.EqualFold(segments[i], "subscriptions") {
			middle = i
			break
		}
	}
	if middle < 0 {
		return at
	}
	at.name = strings.Join(segments[:middle], "/")
	at.words[0] = segments[middle]
	below := segments[middle+1:]
	if len(below) > 1 {
		at.words[1] = below[1]
	}
	switch {
	case len(below) <= 1:
		at.kind = routeSubscriptions
	case len(below) <= 3 && strings.EqualFold(below[1], "rules"):
		at.kind = routeRules
	default:
		at.kind = routeUnknown
	}
	if len(below) > 0 {
		at.subscription = below[0]
	}
	if len(below) > 2 {
		at.rule = below[2]
	}
	return at
}

func reserved(segments []string) routeKind {
	switch {
	case len(segments) == 1 && strings.EqualFold(segments[0], "$namespaceinfo"):
		return routeNamespace
	case len(segments) != 2 || !strings.EqualFold(segments[0], "$Resources"):
		return routeUnknown
	case strings.EqualFold(segments[1], "queues"):
		return routeQueues
	case strings.EqualFold(segments[1], "topics"):
		return routeTopics
	}
	return routeUnknown
}

// validName reports whether an entity may have that name: segments of letters, digits, periods,
// hyphens, underscores and, which the original's text does not tell, tildes. Segments of periods alone are refused, as they mean directories to every
// URL library on the way.
func validName(name string) bool {
	if name == "" || len(name) > maxNameChars {
		return false
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
		for i := range len(segment) {
			c := segment[i]
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			case c == '.' || c == '-' || c == '_' || c == '~':
			default:
				return false
			}
		}
	}
	return true
}

// checkName refuses an illegal name with the service's words.
func checkName(host, name string) error {
	if validName(name) {
		return nil
	}
	if len(name) > maxNameChars {
		return badRequest("The entity name is %d characters long, the limit is %d.", len(name),
			maxNameChars)
	}
	return badRequest("'sb://%s/%s' contains character(s) that is not allowed by Service Bus. "+
		"Entity segments can contain only letters, numbers, periods(.), hyphens(-), and "+
		"underscores(_).", host, clip(name))
}

// query holds the parameters that matter; others are ignored, as clients send stray ones.
type query struct {
	apiVersion string
	enrich     bool // .NET, Python, Java: counters are what the client is after
	validate   bool // our own command line: nothing is to be created
	skip, top  int
	err        error // of skip or top; only lists care
}

func parseQuery(r *http.Request) query {
	// A parameter that cannot be decoded is left out.
	values, _ := url.ParseQuery(r.URL.RawQuery)
	q := query{top: maxPage}
	for name, all := range values {
		value := all[0]
		switch strings.ToLower(name) {
		case "api-version":
			if len(value) <= 32 {
				q.apiVersion = value
			}
		case "enrich":
			q.enrich = strings.EqualFold(value, "true")
		case "validate":
			q.validate = strings.EqualFold(value, "true")
		case "$skip":
			q.skip = q.number(name, value)
		case "$top":
			// Nothing is asked for by a page of nothing; like an absent one it means the default.
			if q.top = min(q.number(name, value), maxPage); q.top == 0 {
				q.top = maxPage
			}
		}
	}
	return q
}

func (q *query) number(name, value string) int {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		q.err = badRequest("The value '%s' of %s is no number of entities.", clip(value), name)
		return 0
	}
	return int(n)
}

// atLeast reports whether the client speaks that api-version or a newer one. Unknown versions and
// none count as the newest; dates compare as text.
func (q *query) atLeast(version string) bool {
	v := q.apiVersion
	if len(v) < 7 || v[4] != '-' || v[0] < '0' || v[0] > '9' {
		return true
	}
	return v[:7] >= version
}

// suffix is the query string that ids carry.
func (q *query) suffix() string {
	if q.apiVersion == "" {
		return ""
	}
	return "?api-version=" + url.QueryEscape(q.apiVersion)
}
