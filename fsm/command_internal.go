package fsm

// DropPumps forgets the remembered results of pumps that will ask no more (A6). Every attempt of theirs must
// have been answered: the copy of one that was not would be done anew when it comes.
type DropPumps struct {
	Node  Incarnation
	Pumps []uint64
}

// Traits implements Command.
func (*DropPumps) Traits() Traits { return Reserved | Idempotent }

// Weight implements Command.
func (c *DropPumps) Weight() int { return requestBytes + 8*len(c.Pumps) }

// NodeLost releases every session held through that life of a node, counts unchanged, and refuses
// its later commands (RUL-19).
type NodeLost struct{ Node Incarnation }

// Traits implements Command.
func (*NodeLost) Traits() Traits { return Reserved | Idempotent | Frees }

// Weight implements Command.
func (*NodeLost) Weight() int { return requestBytes }

// PutEntity makes the share know a version of its entity; older versions than the known are ignored.
type PutEntity struct{ Descriptor Descriptor }

// Traits implements Command.
func (*PutEntity) Traits() Traits { return Reserved | Idempotent }

// Weight implements Command.
func (c *PutEntity) Weight() int {
	d := &c.Descriptor
	return requestBytes + 512 + len(d.Name) + len(d.UserMetadata) + 2*len(d.Partitions) + 512*len(d.AuthRules)
}

// DropEntity removes an entity with everything in it (S-259).
type DropEntity struct{}

// Traits implements Command.
func (*DropEntity) Traits() Traits { return Reserved | Idempotent | Frees }

// Weight implements Command.
func (*DropEntity) Weight() int { return requestBytes }

// BecomeLeader is the first command of a leadership; its log index is the epoch of the rest (A15).
type BecomeLeader struct{ Node NodeID }

// Traits implements Command.
func (*BecomeLeader) Traits() Traits { return 0 }

// Weight implements Command.
func (*BecomeLeader) Weight() int { return requestBytes }

// Tick moves the clocks and handles at most a bounded number of due deadlines (S-288). Listeners are
// the entities that have a listener now (A22).
type Tick struct{ Listeners []EntityID }

// Traits implements Command.
func (*Tick) Traits() Traits { return 0 }

// Weight implements Command.
func (*Tick) Weight() int { return requestBytes }

// Barrier changes nothing; a read that rides behind it is linearizable (A16).
type Barrier struct{}

// Traits implements Command.
func (*Barrier) Traits() Traits { return Idempotent }

// Weight implements Command.
func (*Barrier) Weight() int { return requestBytes }

// Change is a command of the catalog group, in the catalog's own encoding; data partitions refuse it.
type Change struct{ Data []byte }

// Traits implements Command.
func (*Change) Traits() Traits { return 0 }

// Weight implements Command.
func (c *Change) Weight() int { return requestBytes + len(c.Data) }
