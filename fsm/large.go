package fsm

import (
	"fmt"
	"slices"

	"github.com/tidwall/btree"
)

// A body that is too large for one log entry lies in several. Its parts come first, each as a BodyPart
// command, and are staged in the share under the id of an upload. The command that stores the message
// carries the beginning of the body and names the upload. From then on the reference to the beginning
// stands for the whole body: State.large says which parts belong to it (docs/decisions/0043).

const (
	// PartBytes is the most that one BodyPart may carry.
	PartBytes = 256 << 10
	// WholeBytes is the largest body, or session state, that travels in one log entry.
	WholeBytes = 1<<20 + maxBodyOverheadBytes
	// maxParts bounds the parts of one upload: 128 MiB at PartBytes each.
	maxParts = 512
	// maxUploads bounds the uploads of one share that are under way.
	maxUploads = 64
	// maxStagedBytes bounds the staged parts of one partition.
	maxStagedBytes = 1 << 30
	// uploadTime is how long a staged part is kept when nothing follows it, by the lease clock.
	uploadTime Millis = 60 * 1000
)

// upload is what is staged of one body.
type upload struct {
	parts []BodyRef // of an earlier version a prefix: elements are never changed
	bytes uint64
	until Lease
}

// largeBody is a body of which only the first head bytes lie at its reference.
type largeBody struct {
	index  uint64
	offset uint32
	head   uint32
	parts  []BodyRef // never changed
}

func (a largeBody) less(b largeBody) bool {
	if a.index != b.index {
		return a.index < b.index
	}
	return a.offset < b.offset
}

// parted is a session state that lies in parts.
type parted struct {
	bytes uint64
	parts []BodyRef // never changed
}

// stage does a BodyPart.
func (s *State) stage(sh *share, req *Request, c *BodyPart, o *Outcome) {
	up, _ := sh.uploads.Get(c.Upload)
	n := uint64(len(c.Body))
	limit := uint64(sh.d.MaxMessageBytes) + maxBodyOverheadBytes
	switch {
	case req.Sub != Main:
		o.refuse(InvalidOperation, "bodies are not uploaded to a subqueue")
	case c.Upload == 0 || n == 0 || n > PartBytes || c.Number >= maxParts:
		o.refuse(InvalidArgument, fmt.Sprintf("part %d of %d bytes, want 1 to %d", c.Number, n, PartBytes))
	case int(c.Number) < len(up.parts):
		s.free(s.partRef(c)) // an earlier attempt has staged it
	case int(c.Number) > len(up.parts):
		o.refuse(UploadLost, "parts before this one are missing")
	case sh.d.MaxMessageBytes > 0 && up.bytes+n > limit && !sh.restoring: // it was sent when it was allowed
		o.refuse(MessageSizeExceeded, fmt.Sprintf("size %d bytes, maximum %d bytes", up.bytes+n,
			sh.d.MaxMessageBytes))
	case !sh.restoring && !sh.fits(n, o):
	case len(up.parts) == 0 && sh.uploads.Len() >= maxUploads || s.staged+n > maxStagedBytes:
		o.refuse(Busy, "too many large bodies are being uploaded")
	default:
		if up.until != 0 {
			sh.leaseDue.Delete(leaseDue{at: up.until, kind: dueUpload, id: uint64(c.Upload)})
		}
		up.parts = append(up.parts, s.partRef(c))
		up.bytes += n
		up.until = s.lease.After(uploadTime)
		sh.uploads.Set(c.Upload, up)
		sh.leaseDue.Set(leaseDue{at: up.until, kind: dueUpload, id: uint64(c.Upload)})
		sh.size += n
		s.staged += n
	}
}

func (s *State) partRef(c *BodyPart) BodyRef {
	return BodyRef{Index: s.index, Offset: c.BodyOffset, Length: uint32(len(c.Body))}
}

// unstage takes an upload out of the share; its parts are the caller's.
func (s *State) unstage(sh *share, id UploadID) upload {
	up, ok := sh.uploads.Delete(id)
	if ok {
		sh.leaseDue.Delete(leaseDue{at: up.until, kind: dueUpload, id: uint64(id)})
		sh.size -= up.bytes
		s.staged -= up.bytes
	}
	return up
}

// dropUpload frees what was staged and not used in time.
func (s *State) dropUpload(sh *share, id UploadID) { s.freeParts(s.unstage(sh, id).parts) }

func (s *State) freeParts(parts []BodyRef) {
	r := s.run.result
	r.Freed = append(r.Freed, parts...)
}

// ready reports whether all parts of an upload are staged.
func (sh *share) staged(u Upload) bool {
	up, _ := sh.uploads.Get(u.ID)
	return len(up.parts) == int(u.Parts) && up.bytes == uint64(u.Bytes) && u.Parts > 0
}

// claim makes uploads part of the messages that refer to them. From here on whoever frees the body of
// such a message frees all of it. With a part missing it changes nothing.
func (s *State) claim(sh *share, messages []Message, o *Outcome) bool {
	for i := range messages {
		m := &messages[i]
		if m.Rest == (Upload{}) {
			continue
		}
		again := slices.ContainsFunc(messages[:i], func(e Message) bool { return e.Rest.ID == m.Rest.ID })
		if again || len(m.Body) == 0 || !sh.staged(m.Rest) {
			o.refuse(UploadLost, fmt.Sprintf("parts of message %d are missing", i))
			return false
		}
	}
	for i := range messages {
		m := &messages[i]
		if m.Rest == (Upload{}) {
			continue
		}
		s.large.Set(largeBody{index: s.index, offset: m.BodyOffset, head: uint32(len(m.Body)),
			parts: s.unstage(sh, m.Rest.ID).parts})
	}
	return true
}

// freeLarge frees a body that lies in parts; it reports false for any other.
func (s *State) freeLarge(ref BodyRef) bool {
	b, ok := s.large.Delete(largeBody{index: ref.Index, offset: ref.Offset})
	if !ok {
		return false
	}
	r := s.run.result
	r.Freed = append(r.Freed, BodyRef{Index: b.index, Offset: b.offset, Length: b.head})
	s.freeParts(b.parts)
	return true
}

// whole completes the reference to a body on its way out.
func (s *State) whole(d *Delivery) {
	if s.large.Len() == 0 {
		return
	}
	if b, ok := s.large.Get(largeBody{index: d.Ref.Index, offset: d.Ref.Offset}); ok {
		d.Ref.Length, d.Rest = b.head, b.parts
	}
}

// setParted stores a session state that was uploaded.
func (s *State) setParted(sh *share, no uint32, c *SetSessionState, o *Outcome) {
	switch {
	case len(c.State) > 0 || c.Clear:
		o.refuse(InvalidArgument, "a session state is uploaded whole")
		return
	case !sh.staged(c.Rest):
		o.refuse(UploadLost, "parts of the session state are missing")
		return
	case sh.d.MaxMessageBytes > 0 && c.Rest.Bytes > sh.d.MaxMessageBytes:
		o.refuse(MessageSizeExceeded, fmt.Sprintf(
			"session state of %d bytes, maximum %d bytes", c.Rest.Bytes, sh.d.MaxMessageBytes))
		s.dropUpload(sh, c.Rest.ID)
		return
	}
	s.clearState(sh, no, c.Session.ID)
	up := s.unstage(sh, c.Rest.ID)
	sh.states.Set(no, sessionState{data: []byte{}, at: s.wall})
	sh.parted.Set(no, parted{bytes: up.bytes, parts: up.parts})
	sh.size += up.bytes + uint64(len(c.Session.ID))
}

// clearState removes a session's state.
func (s *State) clearState(sh *share, no uint32, id string) {
	old, had := sh.states.Delete(no)
	if had {
		sh.size -= uint64(len(old.data) + len(id))
	}
	if p, ok := sh.parted.Delete(no); ok {
		sh.size -= p.bytes
		s.freeParts(p.parts)
	}
}

// stateBytes is the length of a session's state.
func (sh *share) stateBytes(no uint32) uint64 {
	p, _ := sh.parted.Get(no)
	st, _ := sh.states.Get(no)
	return p.bytes + uint64(len(st.data))
}

// dropParts frees what only the share refers to, when its entity is dropped.
func (s *State) dropParts(sh *share) {
	for _, id := range sh.uploads.Keys() {
		s.dropUpload(sh, id)
	}
	sh.parted.Scan(func(_ uint32, p parted) bool {
		s.freeParts(p.parts)
		return true
	})
}

func newUploads() *btree.Map[UploadID, upload] { return new(btree.Map[UploadID, upload]) }
