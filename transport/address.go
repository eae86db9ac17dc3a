package transport

import (
	"net/url"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// address is a link's address or a token's audience, taken apart. Clients write the same entity as
// "orders", "/orders" with percent escapes, and "amqps://host:port/orders".
type address struct {
	entity     string // as written, "" for the namespace
	sub        fsm.SubQueue
	management bool // the request node of the entity
	cbs        bool // the request node for tokens
}

const (
	cbsNode        = "$cbs"
	managementNode = "$management"
	deadLetterNode = "$DeadLetterQueue"
	transferNode   = "$Transfer"
)

// parseAddress takes an address apart.
func parseAddress(text string) address {
	if i := strings.Index(text, "://"); i >= 0 {
		_, path, _ := strings.Cut(text[i+3:], "/")
		path, _, _ = strings.Cut(path, "?")
		text = path
	}
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	text = strings.Trim(text, "/")
	if strings.EqualFold(text, cbsNode) {
		return address{cbs: true}
	}
	a := address{entity: text}
	a.entity, a.management = cutNode(a.entity, managementNode)
	rest, dead := cutNode(a.entity, deadLetterNode)
	if dead {
		a.entity, a.sub = rest, fsm.DeadLetter
		if rest, transfer := cutNode(a.entity, transferNode); transfer {
			a.entity, a.sub = rest, fsm.TransferDeadLetter
		}
	}
	return a
}

// cutNode removes the last segment if it is node, compared without case.
func cutNode(path, node string) (rest string, found bool) {
	if strings.EqualFold(path, node) {
		return "", true
	}
	i := strings.LastIndexByte(path, '/')
	if i < 0 || !strings.EqualFold(path[i+1:], node) {
		return path, false
	}
	return path[:i], true
}

// path is the address in the form in which rights are checked and texts are written.
func (a address) path() string {
	if a.cbs {
		return cbsNode
	}
	if a.sub == fsm.Main {
		return a.entity
	}
	return a.entity + "/" + a.sub.String()
}

// bareHost is the host in what a client calls us by, without scheme, port and path.
func bareHost(s string) string {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	s, _, _ = strings.Cut(s, "/")
	s, _, _ = strings.Cut(s, ":")
	return s
}
