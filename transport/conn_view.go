package transport

import (
	"slices"
	"strings"
)

// view is what operators see of the connection; with an entity only of links to it. It runs on the loop.
func (c *conn) view(entity string) *ConnectionView {
	c.onLoop()
	v := &ConnectionView{
		ID: c.id(), Container: c.container, Product: c.product, Version: c.version, Protocol: c.protocol.String(),
		Remote: c.socket.RemoteAddr().String(), Host: c.hostname, Since: c.accepted, State: stateOpen,
		Sessions: len(c.channels), MessagesIn: c.messagesIn, MessagesOut: c.messagesOut,
		BytesIn: c.bytesIn, BytesOut: c.bytesOut, Policies: []string{}, Links: []LinkView{},
	}
	if c.phase != phaseOpen {
		v.State = stateClosing
	}
	for _, claim := range c.claims { // order-free: sorted below
		v.Policies = append(v.Policies, keyOf(claim.Claim))
	}
	slices.Sort(v.Policies)
	v.Policies = slices.Compact(v.Policies)
	for _, l := range c.links { // order-free: sorted below
		if l.state > linkAttached {
			continue
		}
		v.OpenLinks++
		shown := l.view()
		v.Unsettled += shown.Unsettled
		if entity == "" || l.addr.below(entity) {
			v.Links = append(v.Links, shown)
		}
	}
	slices.SortFunc(v.Links, func(a, b LinkView) int {
		if n := strings.Compare(a.Entity, b.Entity); n != 0 {
			return n
		}
		return strings.Compare(a.Role+a.Name, b.Role+b.Name)
	})
	v.Links = v.Links[:min(len(v.Links), maxLinkViews)]
	return v
}

// below reports whether the address is of an entity, in any case of letters, or of something inside of it.
func (a address) below(entity string) bool {
	name := a.path()
	n := len(entity)
	return len(name) >= n && strings.EqualFold(name[:n], entity) && (len(name) == n || name[n] == '/')
}

// view is what operators see of the link.
func (l *link) view() LinkView {
	l.ch.c.onLoop()
	v := LinkView{Name: l.name, Role: "receiver", Entity: l.addr.path()}
	if l.clientSends() {
		v.Role = "sender"
	}
	if l.addr.management {
		v.Entity += "/" + managementNode
	}
	switch e := l.end.(type) {
	case *ingress:
		v.Credit, v.Unsettled, v.Messages = e.credit, len(e.pending)+e.flying, e.passed
		if l.dest.entity != "" {
			v.Entity = l.dest.path() + " by way of " + v.Entity
		}
	case *egress:
		v.Credit, v.Unsettled, v.Messages, v.Mode = e.out.credit, e.unsettled, e.passed, "peekLock"
		if e.remove {
			v.Mode = "receiveAndDelete"
		}
		if e.session != nil {
			v.Session = e.session.key.id
		}
	case *browser:
		v.Credit, v.Messages, v.Mode = e.out.credit, e.passed, "browse"
	case *coordinator:
		v.Mode = "transactions"
	case nil:
	default:
		v.Mode = "requests"
	}
	return v
}
