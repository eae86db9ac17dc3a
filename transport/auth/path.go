package auth

import (
	"net/url"
	"strings"
)

// EntityPath normalises the address of an entity or a node below it. Scheme, host, port, query, fragment and empty
// segments are dropped, and ASCII letters become lower case. Text without a scheme is a path as a whole. The
// namespace itself is "".
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

// audiencePath normalises a decoded sr as [EntityPath] does. Text without a scheme begins with a host if that
// names the broker, is an IP address, or has a port or a dot; any other text is the path of an entity. So a token that
// shall open the whole namespace names a host; text without a host or an entity is an error. A percent sign that is left after decoding is an
// error: Java and Go sign the request's URL, which is encoded once more inside, but nobody encodes it twice.
func (p *Policies) audiencePath(sr string) (string, error) {
	text := cutQuery(sr)
	scheme := strings.Index(text, "://")
	if scheme >= 0 {
		text = text[scheme+3:]
	}
	host, path, _ := strings.Cut(text, "/")
	if strings.Contains(host, "%") {
		return "", malformed("sr is percent-encoded more than once")
	}
	if scheme < 0 && !p.isHost(host) {
		path = text
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return "", malformed("sr holds a path that is not percent-encoded")
	}
	if strings.Contains(path, "%") {
		return "", malformed("sr is percent-encoded more than once")
	}
	if path = normalise(path); scheme == 0 || host == "" && path == "" {
		return "", malformed("sr names neither a host nor an entity")
	}
	return path, nil
}

// isHost reports whether the first segment of an audience without a scheme is a host.
func (p *Policies) isHost(text string) bool {
	return text == "" || strings.ContainsAny(text, ".:") || p.hosts[strings.ToLower(text)]
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

// scopeCovers reports whether a policy of the entity scope reaches path. It reaches the entity, its nodes and
// subqueues ($management, $DeadLetterQueue, ...) and its subscriptions. It reaches no other entity whose name merely
// begins with the same segments.
func scopeCovers(scope, path string) bool {
	if scope == "" || scope == path {
		return true
	}
	below, ok := strings.CutPrefix(path, scope+"/")
	return ok && (below[0] == '$' || covers("subscriptions", below))
}
