package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/busbar-mq/busbar/fsm"
)

// The hello is the first frame each way, before anything is allocated for the peer. Its layout is in
// docs/formats/mesh.md.
const (
	helloMagic = "BBMH"
	// helloVersion is what this build says first. A node that knows only helloVersionBefore hangs up, and hears that one.
	helloVersion       = 3
	helloVersionBefore = 2
	helloHeaderBytes   = 8   // magic, version, status, body length
	maxHelloBytes      = 512 // of the body: three names of at most 64 bytes and some fields, or a reason
)

// The status of a hello.
const (
	helloWelcome = 0 // the body is an identity
	helloRefused = 1 // the body is a reason, as text
)

// identity is what a node says about itself in a hello.
type identity struct {
	version     uint8 // of the hello; 0 stands for helloVersion
	cluster     string
	node        fsm.NodeID
	incarnation fsm.Incarnation
	// wants is the node that a dialler expects to answer; empty in an answer, and in a hello of version 2.
	wants fsm.NodeID
	// founded and keyed are digests of what the founders of the cluster are, and of the root key; zero if unknown. Two that
	// are known and differ are of two clusters.
	founded, keyed Digest
	// versions are what the node's program knows and the cluster has; nil of a program that does not tell.
	versions *Versions
}

// Digest is the beginning of a hash of something that all nodes of a cluster have in common; zero is unknown.
type Digest [8]byte

// The tags of the fields behind the names. A number is never used again.
const (
	tagFounded  = 1
	tagKeyed    = 2
	tagVersions = 3
)

func appendDigest(b []byte, tag byte, d Digest) []byte {
	if d == (Digest{}) {
		return b
	}
	return append(append(b, tag, byte(len(d))), d[:]...)
}

// differs reports whether both digests are known and not the same.
func (d Digest) differs(o Digest) bool { return d != o && d != (Digest{}) && o != (Digest{}) }

var (
	// errRefused is the peer's answer that it does not want this connection.
	errRefused = errors.New("peer refused the connection")
	// errNoHello says that the peer ended the connection instead of answering the hello. A node of an earlier version
	// does so when it hears a later one.
	errNoHello = errors.New("no hello came back")
	// errForeign says that a node belongs to another cluster, or has another key.
	errForeign  = errors.New("the two nodes do not belong together")
	errOtherKey = errors.New("its root key is another one than that of this node")
	// errOtherNode says that another node has the address of the one that was dialled.
	errOtherNode = errors.New("another node has this address")
)

func appendHello(b []byte, id identity) []byte {
	if id.version == 0 {
		id.version = helloVersion
	}
	body := binary.BigEndian.AppendUint64(nil, uint64(id.incarnation))
	body = appendText(body, id.cluster)
	body = appendText(body, string(id.node))
	if id.version > helloVersionBefore {
		body = appendText(body, string(id.wants))
		body = appendDigest(body, tagFounded, id.founded)
		body = appendDigest(body, tagKeyed, id.keyed)
		body = appendVersions(body, id.versions)
	}
	b = append(b, helloMagic...)
	b = append(b, id.version, helloWelcome)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

// appendRefusal writes a refusal for a peer that speaks a version.
func appendRefusal(b []byte, version uint8, reason string) []byte {
	if len(reason) > maxHelloBytes {
		reason = reason[:maxHelloBytes]
	}
	b = append(b, helloMagic...)
	b = append(b, version, helloRefused)
	b = binary.BigEndian.AppendUint16(b, uint16(len(reason)))
	return append(b, reason...)
}

// readHello reads exactly one hello. It allocates at most maxHelloBytes.
func readHello(r io.Reader) (identity, error) {
	var header [helloHeaderBytes]byte
	if n, err := io.ReadFull(r, header[:]); err != nil {
		if n == 0 && isEnd(err) {
			err = fmt.Errorf("%w: %w", errNoHello, err)
		}
		return identity{}, fmt.Errorf("read hello: %w", err)
	}
	if string(header[:4]) != helloMagic {
		return identity{}, errors.New("read hello: not a busbar peer")
	}
	version := header[4]
	if version != helloVersion && version != helloVersionBefore {
		return identity{}, fmt.Errorf("read hello: version %d, want %d or %d", version, helloVersionBefore, helloVersion)
	}
	n := binary.BigEndian.Uint16(header[6:])
	if n > maxHelloBytes {
		return identity{}, fmt.Errorf("read hello: %d bytes, want at most %d", n, maxHelloBytes)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return identity{}, fmt.Errorf("read hello: %w", err)
	}
	switch header[5] {
	case helloWelcome:
		return parseIdentity(body, version)
	case helloRefused:
		return identity{}, fmt.Errorf("%w: %q", errRefused, body)
	}
	return identity{}, fmt.Errorf("read hello: unknown status %d", header[5])
}

// parseIdentity reads the body of a welcome. Behind the names, version 3 has fields {tag (1), length (1), bytes}. A tag
// that this build does not know is passed over, so that a later build may say more.
func parseIdentity(b []byte, version uint8) (identity, error) {
	r := gossipReader{b: b}
	id := identity{version: version, incarnation: fsm.Incarnation(r.number(8))}
	id.cluster = r.text(maxNameBytes)
	id.node = r.node(false)
	if version > helloVersionBefore {
		id.wants = r.node(true)
		for r.err == nil && len(r.b) > 0 {
			tag := r.number(1)
			switch field := r.take(int(r.number(1))); {
			case tag == tagFounded && len(field) == len(Digest{}):
				id.founded = Digest(field)
			case tag == tagKeyed && len(field) == len(Digest{}):
				id.keyed = Digest(field)
			case tag == tagVersions && len(field) >= versionsBytes: // a later build may say more
				id.versions = parseVersions(field)
			}
		}
	}
	if err := r.end(); err != nil {
		return identity{}, fmt.Errorf("read hello: %w", err)
	}
	return id, nil
}
