package catalog

import (
	"encoding/json"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// Change is one command of the catalog: exactly one field is set, Limits aside.
type Change struct {
	// Create adds an entity. The catalog fills ID, Version, Parent, Partitions and times. A subscription whose Rules
	// are nil gets the rule $Default, which selects everything (S-215).
	Create *fsm.Descriptor `json:"create,omitempty"`
	// Restore adds an entity of a backup, suspended. Its Prefixes, if it is partitioned, say how many shares it has; its
	// times stay what they were. See Level.
	Restore *fsm.Descriptor `json:"restore,omitempty"`
	// Update replaces the mutable properties of the entity with that name (S-261, S-262). Rules stay.
	Update *fsm.Descriptor `json:"update,omitempty"`
	// Seen comes beside Update: the version of the entity that the description was made from. If the entity has another one
	// the change is Stale, because it would take back what it has not seen. nil is judged by nothing.
	Seen *uint64 `json:"seen,omitempty"`
	// Rehome begins to move shares of an entity to other partitions, and Rehomed takes the move of one a step further.
	Rehome  *Rehome     `json:"rehome,omitempty"`
	Rehomed *RehomeStep `json:"rehomed,omitempty"`
	// Delete removes an entity.
	Delete *Deletion `json:"delete,omitempty"`
	// DeleteIfIdle removes an entity unless it was changed meanwhile (S-257, A22).
	DeleteIfIdle *IdleDeletion `json:"deleteIfIdle,omitempty"`
	// Suspend sets a status that users cannot lift, or lifts it (S-256).
	Suspend *Suspension `json:"suspend,omitempty"`
	// PutRule adds a rule to a subscription or replaces one (S-222).
	PutRule *RulePut `json:"putRule,omitempty"`
	// DropRule removes a rule of a subscription.
	DropRule *RuleDrop `json:"dropRule,omitempty"`
	// Place creates data partitions, each with its replicas. A partition that exists is left alone,
	// so that two catalog leaders may both propose the first placement.
	Place *Placement `json:"place,omitempty"`
	// Replace sets the replicas of one existing partition.
	Replace *Exchange `json:"replace,omitempty"`
	// Node records a node's present life; an earlier incarnation of the same node is lost with it.
	Node *Node `json:"node,omitempty"`
	// Before comes beside Node: the incarnation that it takes the place of, 0 for the first. If the node
	// has another one the change is Stale: it was asked for in a life that is over, and came late.
	Before *fsm.Incarnation `json:"before,omitempty"`
	// Lost declares a life of a node over (RUL-19).
	Lost *Loss `json:"lost,omitempty"`
	// Program comes beside Node: the newest cluster version that the node's program knows. A node of which it is below that of
	// the cluster is refused. Below fsm.VersionUpgrades it is passed over.
	Program fsm.Version `json:"program,omitempty"`
	// Wish says what an operator wants of a node.
	Wish *NodeWish `json:"wish,omitempty"`
	// Forget removes a node that holds nothing from the list for good. It names the life that the one knew who decided.
	Forget *Life `json:"forget,omitempty"`
	// Raise sets the cluster version: every node knows what came with it.
	Raise fsm.Version `json:"raise,omitempty"`
	// Heard comes beside Raise: the lives of all nodes, as the one knew them who asked them. A node that the catalog knows
	// in another life may run another program by now, so the change is refused. nil is asked by nobody and not judged:
	// that of a program before fsm.VersionUpgrades.
	Heard []Life `json:"heard,omitempty"`
	// Limits are those by which Create and PutRule are judged, nil for the defaults. They come beside
	// the one field that is set.
	Limits *Limits `json:"limits,omitempty"`
}

// Deletion names the entity to delete, by id, so that a re-created name is not hit by a retry.
type Deletion struct {
	ID fsm.EntityID `json:"id"`
}

// IdleDeletion names an entity that all its shares report as idle, in the version they know.
type IdleDeletion struct {
	ID      fsm.EntityID `json:"id"`
	Version uint64       `json:"version"`
}

// RulePut is a rule for the subscription Entity. At most one of New and Replace is set: New refuses
// with EntityExists a name that is taken, Replace with EntityNotFound one that is not. CreatedAt is
// the catalog's; a rule that is replaced keeps it and its place.
type RulePut struct {
	Entity  fsm.EntityID `json:"entity"`
	Rule    fsm.Rule     `json:"rule"`
	New     bool         `json:"new,omitempty"`
	Replace bool         `json:"replace,omitempty"`
}

// RuleDrop names a rule of the subscription Entity.
type RuleDrop struct {
	Entity fsm.EntityID `json:"entity"`
	Name   string       `json:"name"`
}

// Placement is a set of new data partitions.
type Placement struct {
	Groups []Group `json:"groups"`
}

// Group is one partition and the nodes that hold its replicas; the first one is the preferred leader.
type Group struct {
	ID      fsm.PartitionID `json:"id"`
	Members []fsm.NodeID    `json:"members"`
	// Founders are the members of the first placement: only they may found the raft group, and only with each other
	// (A20). A node that comes later waits until the group takes it in.
	Founders []fsm.NodeID `json:"founders,omitempty"`
	// Epoch counts the exchanges of the members (docs/decisions/0065-placement.md).
	Epoch uint64 `json:"epoch,omitempty"`
}

// Exchange names one new set of members for a partition. It is refused if the present ones are not
// From, so that two catalog leaders do not undo each other's decisions.
type Exchange struct {
	ID      fsm.PartitionID `json:"id"`
	From    []fsm.NodeID    `json:"from"`
	Members []fsm.NodeID    `json:"members"`
	// Epoch is that of the group at which the exchange was decided. The exchange is refused at any other, and its
	// members have to be registered. nil is an exchange that is fenced by From alone and does not count.
	Epoch *uint64 `json:"epoch,omitempty"`
}

// Node is a broker node as the cluster knows it. Addresses are gossip's business.
type Node struct {
	ID          fsm.NodeID      `json:"id"`
	Name        string          `json:"name"` // --node-id, for people
	Incarnation fsm.Incarnation `json:"incarnation"`
	// Zone is what the node says of where it stands; two replicas of a partition avoid one zone.
	Zone string `json:"zone,omitempty"`
	// Wish is what an operator wants of the node, and Since is the wall clock of that wish. Both outlast a life of the
	// node: a registration does not set them.
	Wish  Wish     `json:"wish,omitempty"`
	Since fsm.Wall `json:"since,omitempty"`
}

// Life names a node and a life of it.
type Life struct {
	ID          fsm.NodeID      `json:"id"`
	Incarnation fsm.Incarnation `json:"incarnation"`
}

// Loss names a life of a node that is over.
type Loss struct {
	Incarnation fsm.Incarnation `json:"incarnation"`
}

// Question is the content of an fsm.Ask: the entity by name or by id.
type Question struct {
	Name string       `json:"name,omitempty"`
	ID   fsm.EntityID `json:"id,omitempty"`
}

// Command returns c as a command for group 0.
func (c *Change) Command() *fsm.Change { return &fsm.Change{Data: encode(c)} }

// Grows reports whether a command of the catalog adds to its state, so that the command may wait when a disk is full.
// A deletion, or a command that keeps the cluster's own affairs in order, may not wait. The catalog refuses a command
// that cannot be read anyway.
func Grows(cmd *fsm.Change) bool {
	var c Change
	if json.Unmarshal(cmd.Data, &c) != nil {
		return true
	}
	return c.Create != nil || c.Restore != nil || c.Update != nil || c.PutRule != nil || c.Place != nil || c.Rehome != nil
}

// Query returns q as a query to group 0.
func (q *Question) Query() *fsm.Ask { return &fsm.Ask{Data: encode(q)} }

// DecodeDescriptor reads the descriptor in the Data of an outcome or answer of group 0.
func DecodeDescriptor(data []byte) (*fsm.Descriptor, error) {
	d := new(fsm.Descriptor)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("%w: catalog descriptor: %w", fsm.ErrFormat, err)
	}
	return d, nil
}

// encode cannot fail: the types above hold nothing that JSON refuses.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("catalog: " + err.Error())
	}
	return b
}
