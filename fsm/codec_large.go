package fsm

// appendLarge appends the commands of large bodies that are no variants of others.
func appendLarge(dst []byte, c Command) []byte {
	if c, ok := c.(*BodyPart); ok {
		dst = appendUint(append(dst, kindBodyPart), uint64(c.Upload))
		return appendBytes(appendUint(dst, uint64(c.Number)), c.Body)
	}
	if c, ok := c.(*Reserve); ok {
		return appendUint(append(dst, kindReserve), uint64(c.Count))
	}
	return appendBackup(dst, c)
}

func (r *reader) large(kind uint8) Command {
	switch kind {
	case kindBodyPart:
		c := &BodyPart{Upload: UploadID(r.uvarint()), Number: r.u32()}
		c.Body = r.bytes()
		c.BodyOffset = uint32(r.pos - len(c.Body))
		return c
	case kindLarge:
		return r.uploads()
	case kindReserve:
		return &Reserve{Count: r.u32()}
	case kindReserved:
		return r.reserved()
	case kindLargeState:
		c := &SetSessionState{Session: r.proof(), Rest: r.upload()}
		if c.Rest == (Upload{}) {
			r.fail("no upload")
		}
		return c
	}
	return r.backup(kind)
}

func appendUpload(dst []byte, u Upload) []byte {
	return appendUint(appendUint(appendUint(dst, uint64(u.ID)), uint64(u.Parts)), uint64(u.Bytes))
}

func (r *reader) upload() Upload {
	u := Upload{ID: UploadID(r.uvarint()), Parts: r.u32(), Bytes: r.u32()}
	if u != (Upload{}) && (u.ID == 0 || u.Parts == 0 || u.Bytes == 0) {
		r.fail("impossible upload")
	}
	return u
}

// appendUploads puts in front of a command what its messages refer to, if any does.
func appendUploads(dst []byte, messages []Message) []byte {
	n := 0
	for i := range messages {
		if messages[i].Rest != (Upload{}) {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	dst = appendUint(append(dst, kindLarge), uint64(n))
	for i := range messages {
		if messages[i].Rest != (Upload{}) {
			dst = appendUpload(appendUint(dst, uint64(i)), messages[i].Rest)
		}
	}
	return dst
}

// minUploadBytes is the shortest encoded reference to an upload, with the place of its message.
const minUploadBytes = 4

// placed is something about one message of the command that follows.
type placed[T any] struct {
	at uint64
	v  T
}

// uploads reads a command with references in front of it.
func (r *reader) uploads() Command {
	list := placedValues(r, minUploadBytes, r.upload)
	if r.left() > 0 && (r.b[r.pos] == kindLarge || r.b[r.pos] == kindReserved) {
		r.fail("references to uploads twice") // decoding nests no deeper than this
	}
	c, messages := r.prefixed()
	return place(r, c, messages, list, "reference to an upload of no message",
		func(m *Message, u Upload) { m.Rest = u })
}

// placedValues reads the list in front of a command. Each element has the place of a message in the command's batch, and a
// value of at least min bytes.
func placedValues[T any](r *reader, min int, read func() T) []placed[T] {
	list := make([]placed[T], 0, r.count(min))
	for range cap(list) {
		list = append(list, placed[T]{r.uvarint(), read()})
	}
	return list
}

// place gives the values to their messages. The places must exist and ascend, and no value may be the zero
// value, else the command is refused with the text wrong.
func place[T comparable](r *reader, c Command, messages []Message, list []placed[T], wrong string,
	set func(*Message, T)) Command {
	var zero T
	for i, p := range list {
		if p.at >= uint64(len(messages)) || p.v == zero || i > 0 && p.at <= list[i-1].at {
			r.fail(wrong)
			return nil
		}
		set(&messages[p.at], p.v)
	}
	return c
}

// prefixed reads the command behind something about its messages.
func (r *reader) prefixed() (Command, []Message) {
	if r.err != nil {
		return nil, nil
	}
	switch c := r.command().(type) {
	case *Enqueue:
		return c, c.Messages
	case *Transfer:
		return c, c.Messages
	}
	r.fail("references of a command without messages")
	return nil, nil
}

// appendReserved puts in front of a command the reserved numbers of its messages, if any has one.
func appendReserved(dst []byte, messages []Message) []byte {
	n := 0
	for i := range messages {
		if messages[i].Reserved != 0 {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	dst = appendUint(append(dst, kindReserved), uint64(n))
	for i := range messages {
		if n := messages[i].Reserved; n != 0 {
			dst = appendUint(appendUint(dst, uint64(i)), uint64(n))
		}
	}
	return dst
}

// minReservedBytes is the shortest encoded number with the place of its message.
const minReservedBytes = 2

// reserved reads a command with reserved numbers in front of it.
func (r *reader) reserved() Command {
	list := placedValues(r, minReservedBytes, func() SequenceNumber { return SequenceNumber(r.uvarint()) })
	if r.left() > 0 && r.b[r.pos] == kindReserved {
		r.fail("reserved numbers twice") // decoding nests no deeper than this
	}
	c, messages := r.prefixed()
	return place(r, c, messages, list, "reserved number of no message",
		func(m *Message, n SequenceNumber) { m.Reserved = n })
}

func appendRefs(dst []byte, refs []BodyRef) []byte {
	dst = appendUint(dst, uint64(len(refs)))
	for _, ref := range refs {
		dst = appendRef(dst, ref)
	}
	return dst
}

// minRefBytes is the shortest encoded reference.
const minRefBytes = 3

func (r *reader) refs() []BodyRef {
	n := r.count(minRefBytes)
	if n == 0 {
		return nil
	}
	refs := make([]BodyRef, n)
	for i := range refs {
		refs[i] = r.ref()
	}
	return refs
}

func anyRest(ds []Delivery) bool {
	for i := range ds {
		if len(ds[i].Rest) > 0 {
			return true
		}
	}
	return false
}
