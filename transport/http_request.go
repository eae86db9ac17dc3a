package transport

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// httpWait is how long a receive waits if the client does not say, httpMaxWait the most.
	httpWait    = time.Minute
	httpMaxWait = 10 * time.Minute
	// httpMargin is what a request may take besides its waiting: to arrive, and to be answered.
	httpMargin = 30 * time.Second
	// httpRefusedBody is how long the body of a refused request may take to arrive.
	httpRefusedBody = 5 * time.Second

	messagesNode = "messages"
	headNode     = "head"
)

// httpTarget is where a request of the data plane leads.
type httpTarget struct {
	addr  address
	head  bool          // the next message
	token fsm.LockToken // of a locked message, zero otherwise
}

// parseTarget finds out whether a path belongs to the data plane. An entity may be called like its
// nodes; the path of a locked message ends in a GUID, which sets it apart.
func parseTarget(path string) (httpTarget, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	n := len(segments)
	is := func(i int, name string) bool { return i > 0 && i < n && strings.EqualFold(segments[i], name) }
	entity := func(i int) address { return parseAddress(strings.Join(segments[:i], "/")) }
	switch {
	case is(n-1, messagesNode):
		return httpTarget{addr: entity(n - 1)}, true
	case is(n-2, messagesNode) && is(n-1, headNode):
		return httpTarget{addr: entity(n - 2), head: true}, true
	case is(n-3, messagesNode):
		id, err := uuid.Parse(segments[n-1])
		if err != nil || len(segments[n-1]) != len(id.String()) || id == (uuid.UUID{}) {
			return httpTarget{}, false
		}
		return httpTarget{addr: entity(n - 3), token: fsm.LockToken(id)}, true
	}
	return httpTarget{}, false
}

// httpRequest is one request of the data plane on its way.
type httpRequest struct {
	httpTarget
	ctx     context.Context // ends with the client, the time of the request, or the server
	w       http.ResponseWriter
	r       *http.Request
	desc    *fsm.Descriptor
	wait    time.Duration
	waiting context.Context // ends when nobody is to wait here any more
	until   time.Time       // when the socket is given up at the latest
	key     string          // of the client, for its rate
}
