package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// maxPeek bounds the messages of one peek; clients ask again (S-249).
const maxPeek = 1_000

// peekMessage browses, share by share in the order of their numbers (S-246, S-247).
func peekMessage(ctx context.Context, k *call) response {
	from, ok := k.integer("from-sequence-number", 0)
	count, ok2 := k.integer("message-count", 1)
	if !ok || !ok2 || count < 1 {
		return k.badArgument("from-sequence-number and message-count must be numbers, the count positive")
	}
	omit, bad := k.omitsBody()
	if bad != nil {
		return *bad
	}
	if v, ok := k.field("sql-filter"); ok {
		filter, ok := v.(string)
		if !ok {
			return k.badArgument("sql-filter must be a string")
		}
		return k.peekChosen(ctx, filter, omit, fsm.SequenceNumber(max(from, 0)), uint32(min(count, maxPeek)))
	}
	k.s.waist.Touch(ctx, k.pump, k.desc, k.addr.sub)
	messages, bad := k.page(ctx, fsm.SequenceNumber(max(from, 0)), uint32(min(count, maxPeek)), omit)
	switch {
	case bad != nil:
		return *bad
	case len(messages) == 0:
		return response{code: codeNoContent}
	}
	return k.messages(messages, 0)
}

// page collects up to left messages from a number on. A share is asked until it has no more, because the client goes on behind
// the page's last message. So a message that does not fit ends the page (S-247, S-249).
func (k *call) page(ctx context.Context, start fsm.SequenceNumber, left uint32, omit bool) (page []carried, bad *response) {
	shares := waist.SharesFrom(k.desc, start)
	room := k.s.cfg.MaxLockBytes
	looked := false
	for n, share := range shares {
		from := start
		if k.desc.Partitioned && k.desc.Prefix(share) != start.Prefix() {
			from = 0
		}
		for more := true; more; {
			q := &fsm.Peek{From: from, Max: left, MaxBytes: room, HasSession: k.hasSession, Session: k.sessionID}
			a, bad := k.query(ctx, k.share(share), q)
			if bad != nil {
				return nil, bad
			}
			for i := range a.Messages {
				d := &a.Messages[i]
				size := uint32(len(d.Body))
				if looked && size > room { // a partition answers with one message at least, whatever its size
					return page, nil
				}
				looked = true
				if shown, ok := k.shows(d, omit); ok {
					page = append(page, shown)
				}
				left, room, from = left-1, room-min(room, size), d.Seq+1
				if left == 0 || room == 0 {
					return page, nil
				}
			}
			more = len(a.Messages) > 0 && n < len(shares)-1
		}
	}
	return page, nil
}

// shows makes a message ready to be shown; ok is false if its stored bytes are none.
func (k *call) shows(d *fsm.Delivery, omit bool) (shown carried, ok bool) {
	var err error
	if omit {
		shown.payload, err = withoutBody(d)
	} else {
		shown, err = carry(d, true)
	}
	if err != nil {
		k.s.log.Error("stored message is unreadable", "entity", k.desc.Name, "error", err)
	}
	return shown, err == nil
}

const (
	// maxFiltered bounds the messages that one peek with a filter looks at.
	maxFiltered = 5_000
	// filterPage is how many of them are asked for at a time.
	filterPage = 250
)

// peekChosen browses for messages that a filter selects, in one share. The answer says where to go on, and may be without
// a message. There is no content when nothing was looked at.
func (k *call) peekChosen(ctx context.Context, filter string, omit bool, start fsm.SequenceNumber, most uint32) response {
	choice, err := newChooser(filter)
	if err != nil {
		return k.badArgument("sql-filter: %v", err)
	}
	k.s.waist.Touch(ctx, k.pump, k.desc, k.addr.sub)
	var messages []carried
	looked, bytes := 0, k.s.cfg.MaxLockBytes
	for _, share := range waist.SharesFrom(k.desc, start) {
		from := fsm.SequenceNumber(0)
		if k.desc.Partitioned {
			from = fsm.SequenceNumber(k.desc.Prefix(share)) << 48
		}
		for from = max(from, start); ; {
			if looked >= maxFiltered || uint32(len(messages)) >= most || bytes == 0 {
				return k.messages(messages, from)
			}
			q := &fsm.Peek{From: from, Max: filterPage, MaxBytes: k.s.cfg.MaxLockBytes, HasSession: k.hasSession, Session: k.sessionID}
			a, bad := k.query(ctx, k.share(share), q)
			if bad != nil {
				return *bad
			}
			for i := range a.Messages {
				d := &a.Messages[i]
				if uint32(len(messages)) >= most || bytes == 0 {
					return k.messages(messages, from)
				}
				looked++
				from = d.Seq + 1
				if !choice.chooses(d) {
					continue
				}
				if shown, ok := k.shows(d, omit); ok {
					messages = append(messages, shown)
					bytes -= min(bytes, uint32(len(d.Body)))
				}
			}
			if len(a.Messages) == 0 {
				break
			}
		}
		if looked > 0 {
			return k.messages(messages, from)
		}
	}
	return response{code: codeNoContent}
}

// omitsBody reports whether a peek asks for messages without their bodies.
func (k *call) omitsBody() (bool, *response) {
	v, ok := k.field("omit-message-body")
	if !ok {
		return false, nil
	}
	omit, ok := v.(bool)
	if !ok {
		bad := k.badArgument("omit-message-body must be a boolean")
		return false, &bad
	}
	return omit, nil
}
