package transport

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// ConnectionFilter chooses AMQP connections. An empty field chooses all; without any field nothing is left out.
type ConnectionFilter struct {
	ID     string `json:"id,omitempty"`
	Client string `json:"client,omitempty"` // a part of the container id, of the product or of the address, in any case
	Entity string `json:"entity,omitempty"` // with its subqueues and subscriptions; a connection needs one link to it
}

// Any reports whether the filter leaves anything out.
func (f *ConnectionFilter) Any() bool { return *f != ConnectionFilter{} }

// ConnectionView is what operators see of an AMQP connection. Sides are the client's: a sender sends to us.
type ConnectionView struct {
	// ID is of this connection alone, in all of the cluster and for all time.
	ID        string `json:"id"`
	Node      string `json:"node,omitempty"` // set by whoever asks several nodes
	Container string `json:"container"`
	Product   string `json:"product,omitempty"`
	Version   string `json:"version,omitempty"`
	// Protocol is amqp, amqps, ws or wss.
	Protocol string `json:"protocol"`
	Remote   string `json:"remote"`
	// Host is how the client calls the broker.
	Host string `json:"host,omitempty"`
	// Policies are the names of the keys and the subjects of the tokens that the client has shown.
	Policies []string  `json:"policies"`
	Since    time.Time `json:"since"`
	// State is open, closing, or silent: one that did not answer in time, as in its handshake.
	State       string `json:"state"`
	Sessions    int    `json:"sessions"` // of AMQP
	MessagesIn  uint64 `json:"messagesIn"`
	MessagesOut uint64 `json:"messagesOut"`
	BytesIn     uint64 `json:"bytesIn"`
	BytesOut    uint64 `json:"bytesOut"`
	Unsettled   int    `json:"unsettled"`
	// OpenLinks counts all links. Links has at most a hundred of them, with a filter by entity those of the entity alone.
	OpenLinks int        `json:"openLinks"`
	Links     []LinkView `json:"links"`
}

// LinkView is one link of a connection.
type LinkView struct {
	Name   string `json:"name"`
	Role   string `json:"role"` // sender or receiver
	Entity string `json:"entity"`
	// Mode of a receiver is peekLock, receiveAndDelete or browse. Of links for requests it is requests, and transactions of
	// those to a coordinator.
	Mode    string `json:"mode,omitempty"`
	Session string `json:"session,omitempty"`
	Credit  uint32 `json:"credit"`
	// Unsettled are messages that were sent and not settled yet; of a sender those that are not stored yet.
	Unsettled int    `json:"unsettled"`
	Messages  uint64 `json:"messages"` // that passed, but for those sent in transactions
}

const (
	// maxLinkViews bounds what one connection shows.
	maxLinkViews = 100
	// viewPatience is how long a connection may take to tell of itself: its loop never waits, but in the handshake it does
	// not listen.
	viewPatience = 250 * time.Millisecond
	// viewers is how many connections are asked at a time.
	viewers = 32
)

// Connections returns what the filter chooses of the open AMQP connections, the oldest first.
func (s *Server) Connections(ctx context.Context, f ConnectionFilter) []ConnectionView {
	views := []ConnectionView{}
	for _, one := range s.chosen(ctx, f) {
		views = append(views, *one.view)
	}
	slices.SortFunc(views, func(a, b ConnectionView) int { return a.Since.Compare(b.Since) })
	return views
}

// CloseConnections ends what the filter chooses of the AMQP connections, each in good order, and returns their ids. They
// are over a moment later. As when the node stops, the client may settle what it holds first, and locks stay until
// they run out.
func (s *Server) CloseConnections(ctx context.Context, f ConnectionFilter) []string {
	ids := []string{}
	for _, one := range s.chosen(ctx, f) {
		ids = append(ids, one.view.ID)
		if one.view.State == stateSilent {
			one.shutdown()
		} else {
			one.post(one.dismiss)
		}
	}
	slices.Sort(ids)
	s.log.Info("operator closed connections", "connections", len(ids), "id", f.ID, "client", f.Client, "entity", f.Entity)
	return ids
}

// chosenConn is a connection with what it has told of itself.
type chosenConn struct {
	*conn
	view *ConnectionView
}

// chosen asks the connections, several at a time, and returns what the filter chooses of them.
func (s *Server) chosen(ctx context.Context, f ConnectionFilter) (all []chosenConn) {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns { // order-free: whoever prints them sorts them
		if f.ID == "" || f.ID == c.id() {
			conns = append(conns, c)
		}
	}
	s.mu.Unlock()
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan *conn)
	for range min(viewers, len(conns)) {
		wg.Go(func() {
			for c := range next {
				if v := c.tellOfItself(ctx, f); v != nil && f.chooses(v) {
					mu.Lock()
					all = append(all, chosenConn{c, v})
					mu.Unlock()
				}
			}
		})
	}
	for _, c := range conns {
		next <- c
	}
	close(next)
	wg.Wait()
	return all
}

// chooses judges what a connection tells of itself. It has told of links to the entity only.
func (f *ConnectionFilter) chooses(v *ConnectionView) bool {
	if f.ID != "" && f.ID != v.ID || f.Entity != "" && len(v.Links) == 0 {
		return false
	}
	part := strings.ToLower(f.Client)
	return slices.ContainsFunc([]string{v.Container, v.Product, v.Remote}, func(text string) bool {
		return strings.Contains(strings.ToLower(text), part)
	})
}

// id names the connection: the life of the node, and a number in it.
func (c *conn) id() string { return fmt.Sprintf("%08x-%d", uint32(c.cfg.Incarnation>>32), c.number) }

// The states of a connection.
const (
	stateOpen    = "open"
	stateClosing = "closing"
	stateSilent  = "silent"
)

// tellOfItself asks the loop; nil if the connection is over. It may be called from anywhere.
func (c *conn) tellOfItself(ctx context.Context, f ConnectionFilter) *ConnectionView {
	patience := time.NewTimer(viewPatience)
	defer patience.Stop()
	told := make(chan *ConnectionView, 1)
	c.post(func() { told <- c.view(f.Entity) })
	select {
	case v := <-told:
		return v
	case <-c.done:
		return nil
	case <-patience.C:
	case <-ctx.Done():
	}
	return &ConnectionView{ID: c.id(), Protocol: c.protocol.String(), Remote: c.socket.RemoteAddr().String(), State: stateSilent,
		Since: c.accepted, Policies: []string{}, Links: []LinkView{}}
}

// dismissal is what a client reads when an operator closes its connection.
const dismissal = "An operator closed the connection."

// dismiss ends the connection as leave does, because an operator wants it.
func (c *conn) dismiss() {
	if c.phase == phaseOpen {
		c.dismissed = true
		c.leave()
	}
}

// farewell is what the client reads when the connection ends from our side in good order.
func (c *conn) farewell() *amqp.Error {
	if c.dismissed {
		return amqpError(amqp.ConditionConnectionForced, "%s", dismissal)
	}
	return amqpError(amqp.ConditionConnectionForced, "%s", "The broker is shutting down, connect again.")
}
