package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// renewLock extends message locks, all or none in each share (S-156).
func renewLock(ctx context.Context, k *call) response {
	if k.desc.RequiresSession && k.addr.sub == fsm.Main { // RUL-5, S-44
		return k.refuse(fsm.InvalidOperation, "Renew the lock of the session.")
	}
	groups, bad := k.tokens()
	if bad != nil {
		return *bad
	}
	until := map[int]fsm.Wall{}
	count := 0
	for _, share := range sortedShares(groups) {
		out, bad := k.propose(ctx, k.share(share), &fsm.Renew{Tokens: groups[share]})
		if bad != nil {
			return *bad
		}
		until[share] = out.LockedUntil
		count += len(groups[share])
	}
	// The answer is parallel to the request.
	v, _ := k.field("lock-tokens")
	ids, _ := amqp.ToUUIDs(v)
	expirations := make([]amqp.Timestamp, 0, count)
	for _, id := range ids {
		expirations = append(expirations, amqp.Timestamp(until[k.desc.ShareOf(fsm.LockToken(id).Prefix())]))
	}
	w := amqp.BeginMap(nil)
	w.Raw("expirations", amqp.AppendArray(nil, expirations))
	return response{code: codeOK, body: w.End()}
}

func sortedShares[T any](groups map[int]T) []int {
	shares := make([]int, 0, len(groups))
	for share := range groups {
		shares = append(shares, share)
	}
	slices.Sort(shares)
	return shares
}

// renewSessionLock extends the lock of a session (S-46).
func renewSessionLock(ctx context.Context, k *call) response {
	proof, bad := k.needSession()
	if bad != nil {
		return *bad
	}
	held := k.held
	out, bad := k.propose(ctx, k.share(held.share), &fsm.RenewSession{Session: proof})
	if bad != nil {
		return *bad
	}
	k.then = func(answer response) response {
		held.renewed(out.LockedUntil)
		return answer
	}
	w := amqp.BeginMap(nil)
	w.Timestamp("expiration", amqp.Timestamp(out.LockedUntil))
	return response{code: codeOK, body: w.End()}
}

// setSessionState replaces or clears the state of a held session (S-65, S-66).
func setSessionState(ctx context.Context, k *call) response {
	proof, bad := k.needSession()
	if bad != nil {
		return *bad
	}
	cmd := &fsm.SetSessionState{Session: proof, Clear: true}
	if raw, ok := k.request.body.Get("session-state"); ok && !raw.IsNull() {
		state, ok := raw.Binary()
		if !ok {
			return k.badArgument("session-state must be binary or null")
		}
		// S-67: zero bytes are a value, except from a client that cannot say null.
		if len(state) > 0 || !k.emptyIsNull {
			cmd.State, cmd.Clear = state, false
		}
	}
	if _, bad := k.propose(ctx, k.share(k.held.share), cmd); bad != nil {
		return *bad
	}
	return response{code: codeOK}
}

// getSessionState reads the state of a held session (S-64, S-68).
func getSessionState(ctx context.Context, k *call) response {
	proof, bad := k.needSession()
	if bad != nil {
		return *bad
	}
	a, bad := k.query(ctx, k.share(k.held.share), &fsm.GetSessionState{Session: proof})
	if bad != nil {
		return *bad
	}
	if len(a.State) > keptScratch {
		key := amqp.AppendString(nil, "session-state")
		body := append(amqp.AppendMapStart(nil, 1, len(key)+amqp.BinaryStartBytes+len(a.State)), key...)
		return response{code: codeOK, body: amqp.AppendBinaryStart(body, len(a.State)), tail: [][]byte{a.State}}
	}
	w := amqp.BeginMap(nil)
	if a.HasState {
		w.Binary("session-state", a.State)
	} else {
		w.Null("session-state")
	}
	return response{code: codeOK, body: w.End()}
}

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
	left, bytes := uint32(min(count, maxPeek)), k.s.cfg.MaxLockBytes
	start := fsm.SequenceNumber(max(from, 0))
	k.s.waist.Touch(ctx, k.pump, k.desc, k.addr.sub)
	var messages []carried
	for _, share := range waist.SharesFrom(k.desc, start) {
		q := &fsm.Peek{Max: left, MaxBytes: bytes, HasSession: k.hasSession, Session: k.sessionID}
		if !k.desc.Partitioned || k.desc.Prefix(share) == start.Prefix() {
			q.From = start
		}
		a, bad := k.query(ctx, k.share(share), q)
		if bad != nil {
			return *bad
		}
		for i := range a.Messages {
			var shown carried
			var err error
			if omit {
				shown.payload, err = withoutBody(&a.Messages[i])
			} else {
				shown, err = carry(&a.Messages[i], true)
			}
			if err != nil {
				k.s.log.Error("stored message is unreadable", "entity", k.desc.Name, "error", err)
				continue
			}
			messages = append(messages, shown)
			bytes -= min(bytes, uint32(len(a.Messages[i].Body)))
		}
		left -= min(left, uint32(len(a.Messages)))
		if left == 0 || bytes == 0 {
			break
		}
	}
	if len(messages) == 0 {
		return response{code: codeNoContent}
	}
	return k.messages(messages)
}

// receiveByNumber takes deferred messages by number, all or none (S-181).
func receiveByNumber(ctx context.Context, k *call) response {
	numbers, bad := k.numbers()
	if bad != nil {
		return *bad
	}
	mode, ok := k.integer("receiver-settle-mode", int64(amqp.ReceiverSecond))
	if !ok || mode < 0 || mode > 1 {
		return k.badArgument("receiver-settle-mode must be 0 or 1")
	}
	var proof fsm.SessionProof
	if k.desc.RequiresSession && k.addr.sub == fsm.Main { // S-74
		if proof, bad = k.needSession(); bad != nil {
			return *bad
		}
	}
	taken, bad := k.receive(ctx, proof, numbers, mode == int64(amqp.ReceiverFirst))
	if bad != nil {
		return *bad
	}
	var messages []carried
	for _, n := range numbers {
		d, ok := taken[n]
		if !ok {
			continue
		}
		one, err := carry(&d, false)
		if err != nil {
			k.s.log.Error("stored message is unreadable", "entity", k.desc.Name, "error", err)
			return k.fail(amqpError(amqp.ConditionInternalError, "internal error"))
		}
		messages = append(messages, one)
	}
	return k.messages(messages)
}

// receive takes numbers of any shares. Over several shares it locks first, so that a number that
// is missing in one of them leaves the others as they were.
func (k *call) receive(ctx context.Context, proof fsm.SessionProof, numbers []fsm.SequenceNumber, remove bool,
) (map[fsm.SequenceNumber]fsm.Delivery, *response) {
	groups := k.byShare(numbers)
	if _, foreign := groups[-1]; foreign {
		r := k.refuse(fsm.MessageNotFound, "")
		return nil, &r
	}
	taken := map[fsm.SequenceNumber]fsm.Delivery{}
	one := len(groups) == 1
	settle := func(v fsm.Verdict) *response {
		items := map[int][]fsm.SettleItem{}
		for _, d := range taken {
			share := max(0, k.desc.ShareOf(d.Token.Prefix()))
			items[share] = append(items[share], fsm.SettleItem{Seq: d.Seq, Token: d.Token, Verdict: v})
		}
		for _, share := range sortedShares(items) {
			if _, bad := k.propose(ctx, k.share(share), &fsm.Settle{Session: proof, Items: items[share]}); bad != nil {
				return bad
			}
		}
		return nil
	}
	for _, share := range sortedShares(groups) {
		out, bad := k.propose(ctx, k.share(share), &fsm.Receive{
			Session: proof, Numbers: groups[share], Delete: remove && one,
		})
		if bad != nil {
			if late := settle(fsm.Return); late != nil {
				k.s.log.Debug("return of deferred messages", "entity", k.desc.Name, "error", late.problem)
			}
			return nil, bad
		}
		for _, d := range out.Locked {
			taken[d.Seq] = d
		}
	}
	if remove && !one {
		if bad := settle(fsm.Complete); bad != nil {
			return nil, bad
		}
		for n, d := range taken {
			d.Token, d.LockedUntil = fsm.LockToken{}, 0
			taken[n] = d
		}
	}
	return taken, nil
}

// updateDisposition settles by token, whichever link the message came over (S-21).
func updateDisposition(ctx context.Context, k *call) response {
	status, _ := k.text("disposition-status")
	item, ok := k.verdict(status)
	if !ok {
		return k.badArgument("disposition-status %q is not known", status)
	}
	if item.Verdict == fsm.Kill {
		k.reasons(&item)
	}
	if raw, ok := k.request.body.Get("properties-to-modify"); ok {
		if err := setProperties(&item, raw); err != nil {
			return k.badArgument("properties-to-modify: %v", err)
		}
	}
	groups, bad := k.tokens()
	if bad != nil {
		return *bad
	}
	var proof fsm.SessionProof
	if k.desc.RequiresSession && k.addr.sub == fsm.Main {
		if proof, bad = k.needSession(); bad != nil {
			return *bad
		}
	}
	for _, share := range sortedShares(groups) {
		cmd := &fsm.Settle{Session: proof}
		for _, token := range groups[share] {
			it := item
			it.Token = token
			cmd.Items = append(cmd.Items, it)
		}
		out, bad := k.propose(ctx, k.share(share), cmd)
		if bad != nil {
			return *bad
		}
		for _, why := range out.Refusals {
			if why != fsm.None {
				k.s.stats.SettleRefused.Add(1)
				return k.refuse(why, out.Detail)
			}
		}
		if !k.staging {
			k.s.stats.Settled.Add(uint64(len(cmd.Items)))
		}
	}
	return response{code: codeOK}
}

// verdict reads the words of a settlement.
func (k *call) verdict(status string) (fsm.SettleItem, bool) {
	switch status {
	case "completed":
		return fsm.SettleItem{Verdict: fsm.Complete}, true
	case "abandoned":
		return fsm.SettleItem{Verdict: fsm.Abandon}, true
	case "defered", "deferred": // the first one is the wire's spelling
		return fsm.SettleItem{Verdict: fsm.Defer}, true
	case "suspended":
		return fsm.SettleItem{Verdict: fsm.Kill}, true
	case "unlocked", "released":
		return fsm.SettleItem{Verdict: fsm.Return}, true
	}
	return fsm.SettleItem{}, false
}

// reasons gives a dead letter its reason and description. A value that is not text becomes an application property
// (RUL-35).
func (k *call) reasons(item *fsm.SettleItem) {
	for _, part := range [...]struct {
		field, property string
		text            *string
	}{
		{"deadletter-reason", propReason, &item.Reason},
		{"deadletter-description", propDescription, &item.Description},
	} {
		raw, _ := k.request.body.Get(part.field)
		text, other := reasonText(raw)
		if other {
			item.Properties = append(item.Properties, fsm.Property{Key: part.property, Value: raw.Clone()})
		}
		*part.text = cutText(text)
	}
}

// scheduleMessage stores messages for later and answers with their numbers (S-107).
func scheduleMessage(ctx context.Context, k *call) response {
	if k.addr.sub != fsm.Main || k.desc.Kind == fsm.Subscription { // S-171
		return k.refuse(fsm.InvalidOperation, "Messages cannot be scheduled here.")
	}
	v, _ := k.field("messages")
	list, ok := amqp.ToItems(v)
	if !ok || len(list) == 0 {
		return k.badArgument("messages must be a list of at least one map")
	}
	d, bytes := &inbound{}, 0
	for _, item := range list {
		m, _ := item.(amqp.Map)
		encoded, _ := m.Get("message")
		payload, ok := encoded.([]byte)
		if !ok {
			return k.badArgument("a message is missing")
		}
		if bytes += len(payload); len(payload) > int(k.desc.MaxMessageBytes) ||
			len(list) > 1 && bytes > k.s.cfg.batchBytes(k.desc) {
			return k.refuse(fsm.MessageSizeExceeded, "")
		}
		if err := d.translate(payload, k.desc, k.s.messageID, false); err != nil {
			return k.fail(err)
		}
	}
	if bad := k.charge(len(d.messages), bytes); bad != nil {
		return *bad
	}
	key := fsm.Key{Entity: k.desc.ID, By: fsm.ByAny}
	if d.byText {
		key.By, key.Text = fsm.ByText, d.text
	}
	reserved, bad := k.reserve(ctx, key, d.messages)
	if bad != nil {
		return *bad
	}
	out, bad := k.propose(ctx, key, &fsm.Enqueue{Messages: d.messages})
	if bad != nil {
		return *bad
	}
	if k.staging {
		out.Numbers = reserved
	} else {
		k.s.stats.MessagesIn.Add(uint64(len(d.messages)))
	}
	numbers := make([]int64, len(d.messages))
	for i, n := range out.Numbers {
		numbers[i] = int64(n)
	}
	w := amqp.BeginMap(nil)
	w.Raw("sequence-numbers", amqp.AppendArray(nil, numbers))
	return response{code: codeOK, body: w.End()}
}

// cancelScheduled deletes scheduled messages, all or none in each share (S-115, S-117).
func cancelScheduled(ctx context.Context, k *call) response {
	numbers, bad := k.numbers()
	if bad != nil {
		return *bad
	}
	groups := k.byShare(numbers)
	if _, foreign := groups[-1]; foreign {
		return k.refuse(fsm.MessageNotFound, "")
	}
	for _, share := range sortedShares(groups) {
		if _, bad := k.propose(ctx, k.share(share), &fsm.Cancel{Numbers: groups[share]}); bad != nil {
			return *bad
		}
	}
	return response{code: codeOK}
}

const (
	// maxSessionsPage is the most session ids of one answer (S-83).
	maxSessionsPage = 100
	// maxSessionsSkip bounds the work of one request; clients page with skip.
	maxSessionsSkip = 100_000
	// allSessionsFrom is the time from which last-updated-time means "whenever": clients ask for
	// all sessions with the year 10000 or 9999 (amqp-protocol.md 7.4).
	allSessionsFrom = 253_370_000_000_000
)

// messageSessions lists session ids, share by share (S-83, S-84).
func messageSessions(ctx context.Context, k *call) response {
	if !k.desc.RequiresSession || k.addr.sub != fsm.Main {
		return k.refuse(fsm.SessionNotSupported, "")
	}
	skip, ok := k.integer("skip", 0)
	top, ok2 := k.integer("top", maxSessionsPage)
	if !ok || !ok2 || skip < 0 || top < 1 || skip > maxSessionsSkip {
		return k.badArgument("skip must be 0 to %d, top positive", maxSessionsSkip)
	}
	after, bad := k.updatedAfter()
	if bad != nil {
		return *bad
	}
	want, passed := int(min(top, maxSessionsPage)), int(skip)
	var found []string
	for _, share := range waist.AllShares(k.desc) {
		q := &fsm.ListSessions{Max: maxSessionsPage, UpdatedAfter: after}
		for len(found) < want {
			a, bad := k.query(ctx, k.share(share), q)
			if bad != nil {
				return *bad
			}
			ids := a.Sessions
			if len(ids) == 0 {
				break
			}
			q.After, q.HasAfter = ids[len(ids)-1], true
			n := min(passed, len(ids))
			passed -= n
			found = append(found, ids[n:]...)
		}
	}
	if len(found) == 0 {
		return response{code: codeNoContent}
	}
	found = found[:min(len(found), want)]
	w := amqp.BeginMap(nil)
	w.Int("skip", int32(skip)+int32(len(found)))
	ids := amqp.AppendArray(nil, found)
	w.Raw("sessions-ids", ids) // the wire's spelling
	w.Raw("session-ids", ids)
	return response{code: codeOK, body: w.End()}
}

// updatedAfter reads the time since which the state of a session must have been set. It returns the last millisecond that
// is too early, or 0 if every session is asked for. The client's own millisecond counts (S-84, S-349).
func (k *call) updatedAfter() (fsm.Wall, *response) {
	for _, key := range [...]string{"last-updated-time", "last-updated-time-utc"} {
		raw, ok := k.request.body.Get(key)
		if !ok || raw.IsNull() {
			continue
		}
		at, ok := raw.Timestamp()
		if !ok {
			bad := k.badArgument("%s must be a timestamp", key)
			return 0, &bad
		}
		if at >= allSessionsFrom {
			return 0, nil
		}
		return fsm.Wall(max(at-1, 1)), nil
	}
	return 0, nil
}
