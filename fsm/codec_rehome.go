package fsm

// minStagedBytes is the shortest body of a move: two numbers of its place, and its length.
const minStagedBytes = 3

func appendRehome(dst []byte, c *Rehome) []byte {
	dst = appendUint(append(dst, byte(c.Step)), c.Epoch)
	switch c.Step {
	case RehomeBodies:
		dst = appendUint(dst, uint64(len(c.Bodies)))
		for i := range c.Bodies {
			dst = appendUint(appendUint(dst, c.Places[i].Index), uint64(c.Places[i].Offset))
			dst = appendBytes(dst, c.Bodies[i].Body)
		}
	case RehomeImage:
		dst = appendBytes(appendUint(dst, c.At), c.Image)
	case RehomeSeal:
		dst = appendUint(appendUint(dst, c.Size), uint64(c.Sum))
	}
	return dst
}

func (r *reader) rehome() *Rehome {
	c := &Rehome{Step: RehomeStep(r.u8()), Epoch: r.uvarint()}
	switch c.Step {
	case RehomeClose, RehomeReopen, RehomeLeave, RehomeDiscard:
	case RehomeBodies:
		n := r.count(minStagedBytes)
		c.Bodies, c.Places = make([]Message, n), make([]BodyRef, n)
		for i := range c.Bodies {
			c.Places[i] = BodyRef{Index: r.uvarint(), Offset: r.u32()}
			b := &c.Bodies[i]
			b.Body = r.bytes()
			b.BodyOffset = uint32(r.pos - len(b.Body))
		}
	case RehomeImage:
		c.At, c.Image = r.uvarint(), r.bytes()
	case RehomeSeal:
		c.Size, c.Sum = r.uvarint(), r.u32()
	default:
		r.fail("unknown step of a move")
	}
	return c
}
