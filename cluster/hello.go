package cluster

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// checkIdentity refuses nodes of other clusters and ourselves.
func (m *Mesh) checkIdentity(conn net.Conn, id identity) error {
	switch {
	case id.cluster != m.cfg.ClusterName:
		return fmt.Errorf("peer is of cluster %q", id.cluster)
	case id.node == m.cfg.Node:
		return fmt.Errorf("peer has our own node id %s", id.node)
	case id.keyed.differs(m.rootKey()) && m.cfg.Known != nil && m.cfg.Known(id.node):
		// The key of a cluster is changed node by node.
		m.tellOnce("a member of the cluster has another root key", id.node, errOtherKey)
	case id.keyed.differs(m.rootKey()):
		return fmt.Errorf("%w: node %s: %w", errForeign, id.node, errOtherKey)
	case id.founded.differs(m.founded()):
		return fmt.Errorf("%w: node %s is of a cluster that other nodes founded", errForeign, id.node)
	}
	if err := m.checkVersions(id); err != nil {
		return err
	}
	return m.checkCertificate(conn, id.node)
}

// greet is the dialler's half of the handshake, in a version of the hello; it returns who answered.
func (m *Mesh) greet(ctx context.Context, raw net.Conn, want fsm.NodeID, version uint8) (net.Conn, identity, error) {
	deadline := time.Now().Add(m.cfg.HelloTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, identity{}, err
	}
	conn, err := m.secure(ctx, raw, true)
	if err != nil {
		return nil, identity{}, err
	}
	if _, err := conn.Write(appendHello(nil, m.identity(version, want))); err != nil {
		return nil, identity{}, fmt.Errorf("write hello: %w", err)
	}
	id, err := readHello(conn)
	if err != nil {
		return nil, identity{}, err
	}
	if err := m.checkIdentity(conn, id); err != nil {
		return nil, identity{}, err
	}
	if id.node != want {
		return nil, identity{}, fmt.Errorf("%w: node %s answers where %s was expected", errOtherNode, id.node, want)
	}
	return conn, id, raw.SetDeadline(time.Time{})
}

// welcome is the listener's half. The hello answers before the link is registered; refuse decides on
// bounds of ours. A dialler that wants another node is answered, so that it learns who is here. It gets no
// link: the one that it may have with this node is a good one. A peer that is refused is returned beside
// the error.
func (m *Mesh) welcome(
	ctx context.Context, raw net.Conn, refuse func(identity) error,
) (net.Conn, identity, error) {
	if err := raw.SetDeadline(time.Now().Add(m.cfg.HelloTimeout)); err != nil {
		return nil, identity{}, err
	}
	conn, err := m.secure(ctx, raw, false)
	if err != nil {
		return nil, identity{}, err
	}
	id, err := readHello(conn)
	if err != nil {
		return nil, identity{}, err
	}
	if err = m.checkIdentity(conn, id); err == nil {
		err = refuse(id)
	}
	if err != nil {
		_, _ = conn.Write(appendRefusal(nil, id.version, err.Error())) // the peer's loss if it does not read it
		return nil, id, err
	}
	if _, err := conn.Write(appendHello(nil, m.identity(id.version, ""))); err != nil {
		return nil, identity{}, fmt.Errorf("write hello: %w", err)
	}
	if id.wants != "" && id.wants != m.cfg.Node {
		return nil, identity{}, fmt.Errorf("%w: node %s wants %s", errOtherNode, id.node, id.wants)
	}
	return conn, id, raw.SetDeadline(time.Time{})
}

// identity is what this node says of itself, in a version of the hello. wants is the node that it dials.
func (m *Mesh) identity(version uint8, wants fsm.NodeID) identity {
	return identity{
		version: version, cluster: m.cfg.ClusterName, node: m.cfg.Node, incarnation: m.cfg.Incarnation, wants: wants,
		founded: m.founded(), keyed: m.rootKey(), versions: m.versions(),
	}
}

// founded is the digest of the founders, zero while this node does not know them.
func (m *Mesh) founded() Digest {
	if m.cfg.Founded == nil {
		return Digest{}
	}
	return m.cfg.Founded()
}

// rootKey is the digest of the key that all nodes share, zero without one.
func (m *Mesh) rootKey() Digest {
	if m.cfg.RootKey == nil {
		return Digest{}
	}
	return m.cfg.RootKey()
}
