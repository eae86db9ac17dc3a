package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// The bytes of docs/formats/gossip.md. Everything here comes from peers that memberlist may not have
// authenticated, so every length is checked and every text bounded.
const (
	gossipVersion = 1
	maxMetaBytes  = 512 // memberlist's limit for what rides along with every alive message

	msgLeader   uint8 = 1
	msgDetail   uint8 = 2
	msgFarewell uint8 = 3

	// Bounds of one state exchange; what exceeds them is left to broadcasts.
	maxStateLeaders = 8192
	maxStateDetails = 512

	// maxPartitions is the end of the range of partition ids (A1).
	maxPartitions = 32768
)

var errGossip = errors.New("malformed gossip")

// meta is what every alive message carries: how to reach the mesh of a node.
type meta struct {
	node        fsm.NodeID
	incarnation fsm.Incarnation
	peerAddr    string // host:port, or :port for the host that gossips
}

// detail is the rest of what a node says about itself.
type detail struct {
	node        fsm.NodeID
	incarnation fsm.Incarnation
	version     uint32 // grows with every change in one incarnation
	opsAddr     string
	clientAddrs []string
}

// farewell is a node's word that it stops on purpose.
type farewell struct {
	node        fsm.NodeID
	incarnation fsm.Incarnation
}

func appendFarewell(b []byte, f farewell) []byte {
	b = appendText(b, string(f.node))
	return binary.BigEndian.AppendUint64(b, uint64(f.incarnation))
}

func appendText(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

func appendMeta(b []byte, m meta) []byte {
	b = append(b, gossipVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(m.incarnation))
	b = appendText(b, string(m.node))
	return appendText(b, m.peerAddr)
}

func appendDetail(b []byte, d detail) []byte {
	b = appendText(b, string(d.node))
	b = binary.BigEndian.AppendUint64(b, uint64(d.incarnation))
	b = binary.BigEndian.AppendUint32(b, d.version)
	b = appendText(b, d.opsAddr)
	b = append(b, byte(len(d.clientAddrs)))
	for _, a := range d.clientAddrs {
		b = appendText(b, a)
	}
	return b
}

func appendLeader(b []byte, l LeaderInfo) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(l.Partition))
	b = binary.BigEndian.AppendUint64(b, l.Term)
	return appendText(b, string(l.Leader))
}

// gossipReader takes fields off bytes; after the first bad one it only yields zeros.
type gossipReader struct {
	b   []byte
	err error
}

func (r *gossipReader) take(n int) []byte {
	if r.err != nil || len(r.b) < n {
		if r.err == nil {
			r.err = fmt.Errorf("%w: %d bytes missing", errGossip, n-len(r.b))
		}
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *gossipReader) number(bytes int) (n uint64) {
	for _, c := range r.take(bytes) {
		n = n<<8 | uint64(c)
	}
	return n
}

func (r *gossipReader) text(maxBytes int) string {
	n := int(r.number(1))
	if r.err == nil && n > maxBytes {
		r.err = fmt.Errorf("%w: text of %d bytes, want at most %d", errGossip, n, maxBytes)
	}
	return string(r.take(n))
}

func (r *gossipReader) node(mayBeEmpty bool) fsm.NodeID {
	id := fsm.NodeID(r.text(maxNameBytes))
	if r.err == nil && (id != "" || !mayBeEmpty) {
		if err := checkNodeID(id); err != nil {
			r.err = fmt.Errorf("%w: %w", errGossip, err)
		}
	}
	return id
}

func (r *gossipReader) version() {
	if v := r.number(1); r.err == nil && v != gossipVersion {
		r.err = fmt.Errorf("%w: version %d, want %d", errGossip, v, gossipVersion)
	}
}

// end reports the first problem, bytes left over being one.
func (r *gossipReader) end() error {
	if r.err == nil && len(r.b) != 0 {
		return fmt.Errorf("%w: %d bytes left over", errGossip, len(r.b))
	}
	return r.err
}

func parseMeta(b []byte) (meta, error) {
	r := gossipReader{b: b}
	r.version()
	m := meta{incarnation: fsm.Incarnation(r.number(8)), node: r.node(false)}
	m.peerAddr = r.text(maxAddrBytes)
	if err := r.end(); err != nil {
		return meta{}, err
	}
	if _, port, err := splitHostPort(m.peerAddr); err != nil || port == 0 {
		return meta{}, fmt.Errorf("%w: peer address %q", errGossip, m.peerAddr)
	}
	return m, nil
}

func (r *gossipReader) detail() detail {
	d := detail{node: r.node(false), incarnation: fsm.Incarnation(r.number(8))}
	d.version = uint32(r.number(4))
	d.opsAddr = r.text(maxAddrBytes)
	n := int(r.number(1))
	if r.err == nil && n > MaxClientAddrs {
		r.err = fmt.Errorf("%w: %d client addresses", errGossip, n)
	}
	for range n {
		if r.err != nil {
			break
		}
		d.clientAddrs = append(d.clientAddrs, r.text(maxAddrBytes))
	}
	return d
}

func (r *gossipReader) leader() LeaderInfo {
	l := LeaderInfo{Partition: fsm.PartitionID(r.number(2)), Term: r.number(8), Leader: r.node(true)}
	if r.err == nil && l.Partition >= maxPartitions {
		r.err = fmt.Errorf("%w: partition %d", errGossip, l.Partition)
	}
	return l
}

// parseMessage reads one broadcast: a LeaderInfo, a detail or a farewell.
func parseMessage(b []byte) (any, error) {
	r := gossipReader{b: b}
	var message any
	switch typ := uint8(r.number(1)); {
	case r.err != nil:
	case typ == msgLeader:
		message = r.leader()
	case typ == msgDetail:
		message = r.detail()
	case typ == msgFarewell:
		message = farewell{r.node(false), fsm.Incarnation(r.number(8))}
	default:
		r.err = fmt.Errorf("%w: message type %d", errGossip, typ)
	}
	return message, r.end()
}

// appendState writes what two nodes tell each other when they meet.
func appendState(b []byte, details []detail, leaders []LeaderInfo) []byte {
	details = details[:min(len(details), maxStateDetails)]
	leaders = leaders[:min(len(leaders), maxStateLeaders)]
	b = append(b, gossipVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(details)))
	for _, d := range details {
		b = appendDetail(b, d)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(leaders)))
	for _, l := range leaders {
		b = appendLeader(b, l)
	}
	return b
}

func parseState(b []byte) (details []detail, leaders []LeaderInfo, err error) {
	r := gossipReader{b: b}
	r.version()
	for n := r.number(2); n > 0 && r.err == nil; n-- {
		details = append(details, r.detail())
	}
	for n := r.number(2); n > 0 && r.err == nil; n-- {
		leaders = append(leaders, r.leader())
	}
	if len(details) > maxStateDetails || len(leaders) > maxStateLeaders {
		return nil, nil, fmt.Errorf("%w: %d details, %d leaders", errGossip, len(details), len(leaders))
	}
	if err := r.end(); err != nil {
		return nil, nil, err
	}
	return details, leaders, nil
}
