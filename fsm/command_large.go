package fsm

// UploadID names an upload in its share. The proposer chooses it at random; 0 stands for none.
type UploadID uint64

// Upload refers to staged parts: what follows the Body of a Message, or a whole session state. The
// zero value stands for none. Parts and Bytes must be what was staged, else UploadLost.
type Upload struct {
	ID    UploadID
	Parts uint32
	Bytes uint32
}

// BodyPart stages one part of a body, of 1 to PartBytes bytes. Numbers begin at 0 and ascend by one; a
// part that is staged already changes nothing, so a BodyPart may be proposed again.
type BodyPart struct {
	Upload UploadID
	Number uint32
	Body   []byte
	// BodyOffset is where Body begins in the encoded entry; set by DecodeEntry.
	BodyOffset uint32
}

// Traits implements Command.
func (*BodyPart) Traits() Traits { return Idempotent | OnTopic }

// Weight implements Command.
func (c *BodyPart) Weight() int { return requestBytes + len(c.Body) }

// Size is the length of the stored form, with the parts that were uploaded.
func (m *Message) Size() int { return len(m.Body) + int(m.Rest.Bytes) }
