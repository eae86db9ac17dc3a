package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// bodySlack is how much longer a stored message may be than its entity's limit.
	bodySlack = 512
	// uploadTime is how long parts are kept when nothing follows them.
	uploadTime fsm.Millis = 60_000
	// maxUploads and maxUploaded bound what is under way in a share, and in all of a partition.
	maxUploads  = 64
	maxUploaded = 1 << 30
	// maxPart and maxParts bound the parts of one body.
	maxPart  = 256 << 10
	maxParts = 512
)

// uploaded are the parts of a body that came before it (docs/decisions/0043).
type uploaded struct {
	id    fsm.UploadID
	parts []fsm.BodyRef
	until fsm.Lease
}

func lengthOf(parts []fsm.BodyRef) (n uint32) {
	for _, p := range parts {
		n += p.Length
	}
	return n
}

// size is how many bytes the message has, its parts among them.
func (x *message) size() uint32 { return x.body.Length + lengthOf(x.parts) }

// sizeOf is how many bytes a message has that comes in, with what was uploaded before it.
func sizeOf(in *fsm.Message) int { return len(in.Body) + int(in.Rest.Bytes) }

func (q *queue) upload(id fsm.UploadID) *uploaded {
	for _, u := range q.uploads {
		if u.id == id {
			return u
		}
	}
	return nil
}

// part takes one part of a body.
func (m *Model) part(q *queue, sub fsm.SubQueue, c *fsm.BodyPart) fsm.Outcome {
	u := q.upload(c.Upload)
	if u == nil {
		u = &uploaded{id: c.Upload}
	}
	ref := m.partRef(c)
	switch n := int(ref.Length); {
	case sub != fsm.Main:
		return refused(fsm.InvalidOperation)
	case c.Upload == 0 || n == 0 || n > maxPart || c.Number >= maxParts:
		return refused(fsm.InvalidArgument)
	case int(c.Number) < len(u.parts): // once more
		return fsm.Outcome{}
	case int(c.Number) > len(u.parts):
		return refused(fsm.UploadLost)
	case int(lengthOf(u.parts))+n > int(q.d.MaxMessageBytes)+bodySlack && !q.restored:
		return refused(fsm.MessageSizeExceeded)
	case q.full(uint64(n)) && !q.restored:
		return refused(fsm.QuotaExceeded)
	case len(u.parts) == 0 && len(q.uploads) >= maxUploads || m.underWay()+n > maxUploaded:
		return refused(fsm.Busy)
	}
	if len(u.parts) == 0 {
		q.uploads = append(q.uploads, u)
	}
	u.parts = append(slices.Clone(u.parts), ref)
	u.until = m.lease.After(uploadTime)
	return fsm.Outcome{}
}

func (m *Model) underWay() (n int) {
	for _, q := range m.queues {
		for _, u := range q.uploads {
			n += int(lengthOf(u.parts))
		}
	}
	return n
}

func (m *Model) partRef(c *fsm.BodyPart) fsm.BodyRef {
	return fsm.BodyRef{Index: m.index, Offset: c.BodyOffset, Length: uint32(len(c.Body))}
}

// whole returns the upload that a command refers to, nil unless all of it is there.
func (q *queue) whole(to fsm.Upload) *uploaded {
	u := q.upload(to.ID)
	if u == nil || len(u.parts) != int(to.Parts) || lengthOf(u.parts) != to.Bytes {
		return nil
	}
	return u
}

func (q *queue) endUpload(u *uploaded) {
	q.uploads = slices.DeleteFunc(slices.Clone(q.uploads), func(o *uploaded) bool { return o == u })
}

// claim makes parts those of the messages that refer to them: of all, or of none.
func (m *Model) claim(q *queue, messages []fsm.Message) bool {
	used := map[fsm.UploadID]bool{}
	for i := range messages {
		to := messages[i].Rest
		if to == (fsm.Upload{}) {
			continue
		}
		if used[to.ID] || len(messages[i].Body) == 0 || q.whole(to) == nil {
			return false
		}
		used[to.ID] = true
	}
	for i := range messages {
		if u := q.upload(messages[i].Rest.ID); u != nil {
			m.parts[m.ref(&messages[i])] = u.parts
			q.endUpload(u)
		}
	}
	return true
}

// decidedAll reports whether everything of a moved batch was decided before.
func (q *queue) decidedAll(c *fsm.Enqueue) bool {
	g := c.Origin
	if g == nil || len(g.Numbers) != len(c.Messages) {
		return false
	}
	from := q.origins[source{g.Entity, g.Partition, g.Sub}]
	for _, n := range g.Numbers {
		below, known := g.Below, false
		if from != nil {
			below = max(below, from.below)
			_, known = from.decided[n]
		}
		if !known && n >= below {
			return false
		}
	}
	return true
}

// setParted makes an upload the state of a session.
func (m *Model) setParted(q *queue, s *session, c *fsm.SetSessionState) fsm.Outcome {
	if len(c.State) > 0 || c.Clear {
		return refused(fsm.InvalidArgument)
	}
	u := q.whole(c.Rest)
	if u == nil || len(u.parts) == 0 {
		return refused(fsm.UploadLost)
	}
	q.endUpload(u)
	if lengthOf(u.parts) > q.d.MaxMessageBytes {
		return refused(fsm.MessageSizeExceeded)
	}
	s.state, s.parts, s.stateAt = []byte{}, u.parts, m.wall
	return fsm.Outcome{}
}

func (m *Model) ref(x *fsm.Message) fsm.BodyRef {
	return fsm.BodyRef{Index: m.index, Offset: x.BodyOffset, Length: uint32(len(x.Body))}
}

// withParts are bodies and the parts behind them.
func (m *Model) withParts(refs []fsm.BodyRef) []fsm.BodyRef {
	all := slices.Clone(refs)
	for _, r := range refs {
		all = append(all, m.parts[r]...)
	}
	return all
}
