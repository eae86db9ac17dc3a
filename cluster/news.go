package cluster

import (
	"math/rand/v2"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// The gossip library looks for news five times a second by default, and a quiet node wakes for that alone. Here it does so
// once a second, in the moment of its probe. News of this package goes out at once (decision 0111).
const (
	gossipInterval   = time.Second
	newsInterval     = 200 * time.Millisecond
	newsNodes        = 3    // that are told at a time
	newsBytes        = 1200 // in a packet, beside the label and the encryption
	farewellInterval = 50 * time.Millisecond
)

// tell queues what every node is to hear.
func (g *Gossip) tell(b broadcast) {
	g.queue.QueueBroadcast(b)
	g.stir()
}

// stir has spread look.
func (g *Gossip) stir() {
	select {
	case g.news <- struct{}{}:
	default: // it will
	}
}

// spread sends what was queued to a few nodes at a time, to each in turn, as often as the queue wants it sent. It runs until
// the gossip is closed. A node that hears news spreads it as well.
func (g *Gossip) spread(list *memberlist.Memberlist) {
	t := time.NewTimer(0)
	defer t.Stop()
	var turn []memberlist.Address // who is told next
	for {
		if len(turn) < newsNodes {
			turn = append(turn, g.others()...)
		}
		if g.queue.NumQueued() == 0 || len(turn) == 0 {
			turn = nil
			select {
			case <-g.news:
				continue
			case <-g.ctx.Done():
				return
			}
		}
		n := min(newsNodes, len(turn))
		for _, to := range turn[:n] {
			for _, b := range g.queue.GetBroadcasts(0, newsBytes) {
				_ = list.SendToAddress(to, b) // a packet may be lost: the next exchange of states has it
			}
		}
		turn = turn[n:]
		t.Reset(newsInterval)
		select {
		case <-t.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// others returns the addresses of the other nodes that are alive, in any order.
func (g *Gossip) others() (addrs []memberlist.Address) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, l := range g.lives {
		if l.state == MemberAlive && l.node != g.cfg.Node {
			addrs = append(addrs, memberlist.Address{Addr: l.gossipAddr, Name: name})
		}
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

// depart has the library say goodbye, and pings the other nodes meanwhile: a ping takes along what the library has to
// tell. Nobody waits for an answer.
func (g *Gossip) depart() error {
	left := make(chan error, 1)
	go func() { left <- g.list.Leave(gossipLeaveTimeout) }()
	t := time.NewTicker(farewellInterval)
	defer t.Stop()
	for {
		select {
		case err := <-left:
			return err
		case <-t.C:
		}
		for _, a := range g.others() {
			if addr, err := net.ResolveUDPAddr("udp", a.Addr); err == nil { // an IP address: nothing is asked
				go func() { _, _ = g.list.Ping(a.Name, addr) }()
			}
		}
	}
}
