package auth

import (
	"net/url"
	"strings"
)

// EntityPath normalises the address of an entity or a node below it: scheme, host, port, query and
// fragment are dropped, empty segments too, ASCII letters become lower case. Text without a scheme
// is a path as a whole. The namespace itself is "".
func EntityPath(address string) string {
	text := cutQuery(address)
	if i := strings.Index(text, "://"); i >= 0 {
		_, text, _ = strings.Cut(text[i+3:], "/")
		if plain, err := url.PathUnescape(text); err == nil {
			text = plain
		}
	}
	return normalise(text)
}

// audiencePath normalises a decoded sr: what [EntityPath] does, except that text without a scheme
// begins with a host, as clients sign a bare "host:port" too. So a token that shall open one entity
// only must name the host as well. A path that cannot be percent-decoded is an error: Java and Go
// sign the request's URL, which is encoded once more inside.
func audiencePath(sr string) (string, error) {
	text := cutQuery(sr)
	if i := strings.Index(text, "://"); i >= 0 {
		text = text[i+3:]
	}
	_, path, _ := strings.Cut(text, "/")
	path, err := url.PathUnescape(path)
	if err != nil {
		return "", malformed("sr holds a path that is not percent-encoded")
	}
	return normalise(path), nil
}

func cutQuery(text string) string {
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		return text[:i]
	}
	return text
}

// normalise lowers ASCII letters only: names consist of them, and Unicode folding would let two
// spellings meet that the catalog keeps apart.
func normalise(path string) string {
	out := make([]byte, 0, len(path))
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" {
			continue
		}
		if len(out) > 0 {
			out = append(out, '/')
		}
		for i := range len(segment) {
			c := segment[i]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			out = append(out, c)
		}
	}
	return string(out)
}

// covers reports whether prefix is path or a prefix of it by whole segments; "" covers everything.
func covers(prefix, path string) bool {
	if prefix == "" || prefix == path {
		return true
	}
	return strings.HasPrefix(path, prefix) && path[len(prefix)] == '/'
}

// scopeCovers reports whether a policy of the entity scope reaches path: the entity, its nodes and
// subqueues ($management, $DeadLetterQueue, ...) and its subscriptions, but no other entity whose
// name merely begins with the same segments.
func scopeCovers(scope, path string) bool {
	if scope == "" || scope == path {
		return true
	}
	below, ok := strings.CutPrefix(path, scope+"/")
	return ok && (below[0] == '$' || covers("subscriptions", below))
}
