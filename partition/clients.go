package partition

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// Clients are the clients of a node: transport.Server.
type Clients interface {
	// SendAway has them go to other nodes, and returns when nothing is left that was begun for them. If ctx ends first, they
	// are cut off.
	SendAway(ctx context.Context) error
	// TakeBack serves them again.
	TakeBack()
}

// awayTimeout is how long the clients of a node that leaves have to give back what they hold.
const awayTimeout = 30 * time.Second

// clientsOf knows whether this node has clients.
type clientsOf struct {
	mu   sync.Mutex
	are  Clients  // nil while there are none
	left fsm.Wall // the time of the wish because of which they have gone, 0 while they are served
}

// ServeClients says who the clients of this node are. It is called once, before they are served.
func (h *Host) ServeClients(c Clients) {
	h.clients.mu.Lock()
	h.clients.are = c
	left := h.clients.left != 0
	h.clients.mu.Unlock()
	if left {
		_ = c.SendAway(context.Background()) // nobody has come yet
	}
}

// sendAway and takeBack are called by one goroutine.
func (c *clientsOf) sendAway(ctx context.Context, wish fsm.Wall, log hclog.Logger) {
	if are := c.set(0); are != nil {
		ctx, cancel := context.WithTimeout(ctx, awayTimeout)
		defer cancel()
		if err := are.SendAway(ctx); err != nil {
			log.Warn("clients did not leave in time and were cut off, because this node leaves the cluster", "error", err)
		}
	}
	c.set(wish)
}

func (c *clientsOf) takeBack() {
	if are := c.set(0); are != nil {
		are.TakeBack()
	}
}

func (c *clientsOf) set(left fsm.Wall) Clients {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = left
	return c.are
}

// state returns whether clients are served, and because of which wish they have left.
func (c *clientsOf) state() (serves bool, left fsm.Wall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left == 0, c.left
}
