package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
)

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
