package transport

import (
	"maps"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// heldClaim is a claim of a connection, with its place in the order in which the client sent its tokens.
type heldClaim struct {
	auth.Claim
	order uint64
}

// allowed reports whether a token of this connection opens path for one of the rights.
func (c *conn) allowed(path string, right auth.Right) bool {
	now := time.Now()
	opens := func(claim *heldClaim) bool { return !claim.ExpiredAt(now) && claim.AllowsAny(path, right) }
	if own, ok := c.claims[auth.EntityPath(path)]; ok && opens(&own) {
		return true // most clients send a token for each entity
	}
	for _, claim := range c.claims {
		if opens(&claim) {
			return true
		}
	}
	return false
}

// right is what the link needs.
func (l *link) right() auth.Right {
	l.ch.c.onLoop()
	switch {
	case l.addr.management:
		return auth.All // any one; each operation needs its own
	case l.clientSends():
		return auth.Send
	}
	return auth.Listen
}

// allowed reports whether a token opens the link's node for one of the rights. Some clients ask for
// a token of the request node itself and none of its entity.
func (l *link) allowed(right auth.Right) bool {
	l.ch.c.onLoop()
	path := l.addr.path()
	if l.addr.management {
		path += "/" + managementNode
	}
	return l.ch.c.allowed(path, right)
}

// authorize refuses a link that no token opens.
func (l *link) authorize() error {
	l.ch.c.onLoop()
	if l.allowed(l.right()) {
		return nil
	}
	return linkFault(siteUnauthorized, amqp.ConditionUnauthorizedAccess, "%s",
		unauthorizedText(l.addr.path(), l.right()))
}

// expireClaims forgets tokens that have run out and ends the links that no other one opens.
func (c *conn) expireClaims(now time.Time) {
	c.dropClaims("The token has expired.", func(claim auth.Claim) bool { return claim.ExpiredAt(now) })
}

// revokeClaims forgets tokens and keys whose policy has changed, and ends the links that no other one opens.
func (c *conn) revokeClaims() {
	c.dropClaims("The access policy was removed, or its key or rights were changed.",
		func(claim auth.Claim) bool { return !c.s.policies.Stands(claim) })
}

// dropClaims forgets the claims that are over, and ends the links that no other one opens with the text.
func (c *conn) dropClaims(text string, over func(auth.Claim) bool) {
	before := len(c.claims)
	maps.DeleteFunc(c.claims, func(_ string, claim heldClaim) bool { return over(claim.Claim) })
	if len(c.claims) == before {
		return
	}
	for _, l := range c.links {
		// Links of request nodes stay: each request is authorized on its own.
		if l.state > linkAttached || l.addr.cbs || l.addr.management || l.addr.entity == "" ||
			l.allowed(l.right()) && (l.dest.entity == "" || c.allowed(l.dest.path(), auth.Send)) {
			continue
		}
		l.ch.touch()
		c.fault(l.ch, l, linkFault(siteUnauthorized, amqp.ConditionUnauthorizedAccess, "%s", text))
	}
}

// sender returns the key by which a client sends to path, "" if there are no rates. Of several it is the first by name.
func (c *conn) sender(path string) (key string) {
	if !c.s.rates.limits() {
		return ""
	}
	now := time.Now()
	for _, claim := range c.claims {
		if name := keyOf(claim.Claim); !claim.ExpiredAt(now) && claim.AllowsAny(path, auth.Send) && (key == "" || name < key) {
			key = name
		}
	}
	return key
}

// admitClaim adds what a token proves; the connection is no stranger any more.
func (c *conn) admitClaim(audience string, claim auth.Claim) {
	c.tokens++
	c.claims[audience] = heldClaim{claim, c.tokens}
	if !c.authed {
		c.authed = true
		c.onAuthed()
	}
}
