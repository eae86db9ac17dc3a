package fsm

import "fmt"

// Version 5 of an image: large bodies.

// parts reads references to stored parts.
func (l *loader) parts(r *reader) (parts []BodyRef, bytes uint64) {
	parts = r.refs()
	for i := range parts {
		l.translate(r, &parts[i].Index, &parts[i].Offset, parts[i].Length)
		ref := parts[i]
		if ref.Index > l.s.index || ref.Length == 0 || ref.Length > PartBytes {
			r.fail("impossible part of a body")
		}
		bytes += uint64(ref.Length)
	}
	if len(parts) == 0 || len(parts) > maxParts {
		r.fail("body of no parts, or of too many")
	}
	return parts, bytes
}

// large reads which parts follow the beginning of a body; who refers to it is read later.
func (l *loader) large(r *reader) {
	b := largeBody{index: r.uvarint(), offset: r.u32(), head: r.u32()}
	b.parts, _ = l.parts(r)
	l.translate(r, &b.index, &b.offset, b.head)
	if _, twice := l.s.large.Get(b); twice || l.sh != nil || b.index > l.s.index || b.head == 0 {
		r.fail("large body out of order")
		return
	}
	l.s.large.Set(b)
	if l.wanted == nil {
		l.wanted = map[sharedBody]struct{}{}
	}
	l.wanted[sharedBody{index: b.index, offset: b.offset}] = struct{}{}
}

// upload reads what is staged of one body.
func (l *loader) upload(r *reader) {
	sh := l.sh
	id, up := UploadID(r.uvarint()), upload{until: r.lease()}
	up.parts, up.bytes = l.parts(r)
	if _, twice := sh.uploads.Get(id); twice || id == 0 || up.until <= 0 || sh.uploads.Len() >= maxUploads {
		r.fail("upload contradicts others")
		return
	}
	sh.uploads.Set(id, up)
	sh.leaseDue.Set(leaseDue{at: up.until, kind: dueUpload, id: uint64(id)})
	sh.size += up.bytes
	l.s.staged += up.bytes
}

// parted reads the parts of a session's state, which was read before as an empty one.
func (l *loader) parted(r *reader) {
	sh := l.sh
	no := r.u32()
	var p parted
	p.parts, p.bytes = l.parts(r)
	st, has := sh.states.Get(no)
	if _, twice := sh.parted.Get(no); twice || !has || len(st.data) > 0 {
		r.fail("parts of no session state")
		return
	}
	sh.parted.Set(no, p)
	sh.size += p.bytes
}

func (f *frameWriter) large(b *largeBody) []byte {
	dst := appendUint(append(f.buf, recordLarge), b.index)
	return appendRefs(appendUint(appendUint(dst, uint64(b.offset)), uint64(b.head)), b.parts)
}

// uploads writes what the share alone has in parts.
func (f *frameWriter) uploads(sh *share) bool {
	sh.parted.Scan(func(no uint32, p parted) bool {
		return f.done(appendRefs(appendUint(append(f.buf, recordParted), uint64(no)), p.parts))
	})
	sh.uploads.Scan(func(id UploadID, up upload) bool {
		b := appendTime(appendUint(append(f.buf, recordUpload), uint64(id)), up.until)
		return f.done(appendRefs(b, up.parts))
	})
	return f.err == nil
}

// checkUploads counts what is staged, and what session states have in parts.
func (sh *share) checkUploads() (size, staged uint64, err error) {
	sh.uploads.Scan(func(id UploadID, up upload) bool {
		n := uint64(0)
		for _, ref := range up.parts {
			n += uint64(ref.Length)
		}
		if n != up.bytes || n == 0 {
			err = fmt.Errorf("upload %d of %d bytes, counted %d", id, up.bytes, n)
		}
		staged += n
		return err == nil
	})
	sh.parted.Scan(func(no uint32, p parted) bool {
		n := uint64(0)
		for _, ref := range p.parts {
			n += uint64(ref.Length)
		}
		if st, has := sh.states.Get(no); !has || len(st.data) > 0 || n != p.bytes {
			err = fmt.Errorf("state of session %d of %d bytes in parts, counted %d", no, p.bytes, n)
		}
		size += n
		return err == nil
	})
	return size + staged, staged, err
}
