package fsm

// RehomeStep is what a Rehome does.
type RehomeStep uint8

// The steps of a move of one share to another partition. Each may be repeated.
const (
	// RehomeClose closes the share at its old home. From then on everything else is refused with Stale, time does nothing
	// in the share, and nothing in it changes. Answers that are remembered are given as before.
	RehomeClose RehomeStep = 1 + iota
	// RehomeReopen gives the epoch up at the old home: the share is served there again, and a later RehomeClose of that
	// epoch is refused.
	RehomeReopen
	// RehomeLeave says at the old home that the share is served elsewhere. Its content is dropped when the answers about it
	// are forgotten.
	RehomeLeave
	// RehomeBodies stages bodies at the new home.
	RehomeBodies
	// RehomeImage stages a piece of the image of the closed share at the new home.
	RehomeImage
	// RehomeSeal makes a share of what is staged. The share is served when a description says that it is here.
	RehomeSeal
	// RehomeDiscard drops at the new home what came with that epoch or an earlier one.
	RehomeDiscard
)

// Rehome is one step of moving a share from one partition to another (docs/decisions/0074-partitions-can-be-added.md). The
// partition need not know the entity: all that it has is staged under the id.
type Rehome struct {
	Step  RehomeStep
	Epoch uint64 // of the move; a later move of the entity has a higher one
	// Bodies are those of RehomeBodies. Only Body of a Message is used.
	Bodies []Message
	// Places are parallel to Bodies: where each is at the old home. Their lengths are not used.
	Places []BodyRef
	// At is where Image begins in the image of the share. RehomeImage only.
	At    uint64
	Image []byte
	// Size and Sum are the length of the image and its CRC-32C. RehomeSeal only.
	Size uint64
	Sum  uint32
}

// Traits implements Command.
func (c *Rehome) Traits() Traits {
	switch c.Step {
	case RehomeBodies, RehomeImage:
		return Stores | OnTopic | Idempotent | Silent
	case RehomeLeave, RehomeDiscard:
		return Reserved | Frees | OnTopic | Idempotent | Silent
	}
	return Reserved | OnTopic | Idempotent | Silent
}

// Weight implements Command.
func (c *Rehome) Weight() int { return weighMessages(c.Bodies) + len(c.Image) }
