package cluster

import (
	"encoding/binary"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/busbar-mq/busbar/fsm"
)

// delegate is what memberlist calls, some of it with its own lock held: nothing here may call back
// into memberlist or wait.
type delegate struct{ g *Gossip }

// NodeMeta returns what rides with every alive message of ours.
func (d delegate) NodeMeta(limit int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	b := appendMeta(nil, d.g.meta)
	if len(b) > min(limit, maxMetaBytes) {
		return nil // memberlist would panic; Validate keeps it from coming so far
	}
	return b
}

// NotifyMsg takes one broadcast, of which memberlist keeps the bytes.
func (d delegate) NotifyMsg(b []byte) {
	message, err := parseMessage(b)
	if err != nil {
		d.g.log.Debug("broadcast ignored", "error", err)
		return
	}
	switch word := message.(type) {
	case LeaderInfo:
		d.g.heardLeader(word)
	case detail:
		if d.g.heardDetail(word) {
			d.g.broadcastDetail(word)
		}
	case farewell:
		if d.g.heardFarewell(word) {
			d.g.broadcastFarewell(word)
		}
	}
}

// GetBroadcasts adds nothing to the packets of the library: Gossip.spread sends our own.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns all that we know, for a node that we meet.
func (d delegate) LocalState(bool) []byte {
	d.g.mu.Lock()
	details := []detail{d.g.self}
	for _, det := range d.g.details {
		details = append(details, det)
	}
	d.g.mu.Unlock()
	return appendState(nil, details, d.g.view.Leaders())
}

// MergeRemoteState learns what a node that we meet knows.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	details, leaders, err := parseState(b)
	if err != nil {
		d.g.log.Debug("state exchange ignored", "error", err)
		return
	}
	for _, det := range details {
		if d.g.heardDetail(det) {
			d.g.broadcastDetail(det)
		}
	}
	for _, l := range leaders {
		d.g.heardLeader(l)
	}
}

// NotifyAlive keeps nodes whose word about themselves does not parse from becoming members.
func (d delegate) NotifyAlive(n *memberlist.Node) error { return d.g.admissible(n.Name, n.Meta) }

// NotifyJoin notes a new life.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	d.g.arrived(n.Name, n.Addr.String(), n.Address(), n.Meta)
	d.g.stir() // there may have been nobody to tell
}

// NotifyUpdate notes a life's new address.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

// NotifyLeave notes the end of an incarnation. memberlist does not tell here whether the node left or died. So a
// node that leaves sends a farewell of this package.
func (d delegate) NotifyLeave(n *memberlist.Node) { d.g.departed(n.Name) }

// AckPayload puts our wall clock into the answer to a probe.
func (d delegate) AckPayload() []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
}

// NotifyPingComplete reads the clock of a node that answered a probe.
func (d delegate) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, payload []byte) {
	if len(payload) == 8 {
		d.g.measured(n.Name, fsm.Wall(binary.BigEndian.Uint64(payload)), rtt)
	}
}

// heardLeader learns from another node; what is news is passed on.
func (g *Gossip) heardLeader(l LeaderInfo) {
	if g.view.learn(l.Partition, l.Leader, l.Term) {
		g.spreadLeader(l.Partition, l.Leader, l.Term)
	}
}

func (g *Gossip) spreadLeader(p fsm.PartitionID, leader fsm.NodeID, term uint64) {
	g.tell(broadcast{
		name: fmt.Sprintf("leader/%d", p),
		b:    appendLeader([]byte{msgLeader}, LeaderInfo{p, leader, term}),
	})
}

// spreadDetail tells about this node.
func (g *Gossip) spreadDetail() {
	g.mu.Lock()
	self := g.self
	g.mu.Unlock()
	g.broadcastDetail(self)
}

func (g *Gossip) broadcastDetail(d detail) {
	b := appendDetail([]byte{msgDetail}, d)
	if len(b) > maxBroadcastBytes {
		return
	}
	g.tell(broadcast{name: "detail/" + lifeName(d.node, d.incarnation), b: b})
}

func (g *Gossip) broadcastFarewell(f farewell) {
	g.tell(broadcast{
		name: "farewell/" + lifeName(f.node, f.incarnation), b: appendFarewell([]byte{msgFarewell}, f),
	})
}

// broadcast is one message to all; a newer one of the same name replaces it, which bounds the queue
// by the number of partitions and nodes.
type broadcast struct {
	name string
	b    []byte
}

// Invalidates implements memberlist.Broadcast; names do the work.
func (broadcast) Invalidates(memberlist.Broadcast) bool { return false }

// Name implements memberlist.NamedBroadcast.
func (b broadcast) Name() string { return b.name }

// Message implements memberlist.Broadcast.
func (b broadcast) Message() []byte { return b.b }

// Finished implements memberlist.Broadcast.
func (broadcast) Finished() {}

// maxGossipLinesPerSecond keeps whoever throws bytes at the gossip port from filling the log.
const maxGossipLinesPerSecond = 20

// gossipLog passes memberlist's lines on at their level, and no more than so many in a second.
type gossipLog struct {
	log hclog.Logger

	mu      sync.Mutex
	second  int64
	lines   int
	dropped int
}

func newGossipLog(l hclog.Logger) *log.Logger {
	return log.New(&gossipLog{log: l}, "", 0)
}

// Write implements io.Writer for one line.
func (w *gossipLog) Write(p []byte) (int, error) {
	w.mu.Lock()
	now := time.Now().Unix()
	dropped := 0
	if now != w.second {
		dropped, w.dropped = w.dropped, 0
		w.second, w.lines = now, 0
	}
	w.lines++
	keep := w.lines <= maxGossipLinesPerSecond
	if !keep {
		w.dropped++
	}
	w.mu.Unlock()
	if dropped > 0 {
		w.log.Warn("lines of the gossip library dropped", "count", dropped)
	}
	if keep {
		level, text := levelOf(strings.TrimSpace(string(p)))
		w.log.Log(level, text)
	}
	return len(p), nil
}

// levelOf takes the level off a line. The library's errors are about single packets and peers, so
// they are warnings here.
func levelOf(line string) (hclog.Level, string) {
	for prefix, level := range map[string]hclog.Level{
		"[ERR] ": hclog.Warn, "[WARN] ": hclog.Warn, "[INFO] ": hclog.Debug, "[DEBUG] ": hclog.Trace,
	} {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return level, strings.TrimPrefix(rest, "memberlist: ")
		}
	}
	return hclog.Debug, line
}
