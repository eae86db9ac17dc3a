package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/waist"
)

// call is one management request being served, off the loop.
type call struct {
	s       *Server
	desc    *fsm.Descriptor
	addr    address
	request *request
	pump    *waist.Pump
	sender  string // the key by which the client sends, for its rate

	sessionID  string
	hasSession bool
	held       *heldSession            // of this connection, nil if it does not hold that session
	proof      fsm.SessionProof        // of held
	then       func(response) response // to run on the loop afterwards; it may replace the answer
	staging    bool                    // the request is part of a transaction: its commands are only kept
	staged     []txnWork

	emptyIsNull bool         // the client writes null state as empty binary
	missing     bool         // an entity or rule turned out not to exist
	room        int          // bytes that the rules in an answer may have
	event       *audit.Event // for the audit log, nil for nothing
}

// maxMoves bounds how often one request follows a name from one entity to the next.
const maxMoves = 3

// moveTo has the request served again, for the entity that has the name now.
func (k *call) moveTo(d *fsm.Descriptor) response {
	if k.request.moves >= maxMoves {
		return k.refuse(fsm.Busy, "")
	}
	return response{moved: d}
}

// codeOf returns the status code that goes with a condition (amqp-protocol.md 7.3).
func codeOf(condition amqp.Symbol) int {
	switch condition {
	case amqp.ConditionMessageLockLost, amqp.ConditionSessionLockLost, amqp.ConditionSessionCannotBeLocked:
		return 410
	case amqp.ConditionMessageNotFound, amqp.ConditionNotFound:
		return 404
	case amqp.ConditionEntityAlreadyExists:
		return 409
	case amqp.ConditionArgumentError, amqp.ConditionArgumentOutOfRange, amqp.ConditionNotAllowed,
		amqp.ConditionEntityDisabled:
		return codeBadRequest
	case amqp.ConditionNotImplemented:
		return 501
	case amqp.ConditionUnauthorizedAccess:
		return 401
	case amqp.ConditionResourceLimitExceeded, amqp.ConditionMessageSizeExceeded:
		return 403
	case amqp.ConditionServerBusy:
		return 503
	case amqp.ConditionTimeout:
		return 408
	}
	return 500
}

func (k *call) fail(e *amqp.Error) response { return failed(codeOf(e.Condition), e) }

func (k *call) badArgument(format string, args ...any) response {
	k.s.stats.reject(siteRequest)
	return k.fail(amqpError(amqp.ConditionArgumentError, format, args...))
}

func (k *call) refuse(why fsm.Refusal, detail string) response {
	k.missing = k.missing || why == fsm.EntityNotFound
	return k.fail(k.s.refusal(why, detail, k.addr.path()))
}

// field returns a value of the request's body; nil if it is there but not well-formed.
func (k *call) field(name string) (any, bool) {
	raw, ok := k.request.body.Get(name)
	if !ok || raw.IsNull() {
		return nil, false
	}
	v, err := raw.Value()
	if err != nil {
		return nil, true
	}
	return v, true
}

// text returns a text of the body; ok is false if it is absent or null.
func (k *call) text(name string) (string, bool) {
	raw, ok := k.request.body.Get(name)
	if !ok {
		return "", false
	}
	return raw.Text()
}

// integer returns a number of the body, of whatever integer type (Q23).
func (k *call) integer(name string, absent int64) (int64, bool) {
	v, ok := k.field(name)
	if !ok {
		return absent, true
	}
	return amqp.ToInt64(v)
}

// share returns the key of the share with that prefix, in the call's subqueue.
func (k *call) share(i int) fsm.Key { return waist.ShareKey(k.desc, k.addr.sub, i) }

// propose sends one command; the response is the failure, if it failed.
func (k *call) propose(ctx context.Context, key fsm.Key, cmd fsm.Command) (fsm.Outcome, *response) {
	if k.staging {
		k.stage(key, cmd)
		return fsm.Outcome{}, nil
	}
	return k.proposeNow(ctx, key, cmd)
}

// proposeNow sends one command although the request may be part of a transaction.
func (k *call) proposeNow(ctx context.Context, key fsm.Key, cmd fsm.Command) (fsm.Outcome, *response) {
	out, err := k.s.waist.Propose(ctx, k.pump, key, cmd)
	if err != nil {
		r := k.failure(err)
		return out, &r
	}
	if out.Refusal != fsm.None {
		r := k.refuse(out.Refusal, out.Detail)
		return out, &r
	}
	return out, nil
}

// failure is the answer to an attempt that failed.
func (k *call) failure(err error) response {
	k.missing = k.missing || waist.IsGone(err)
	return k.fail(k.s.errorOf(err, k.addr.path()))
}

// query asks one share; the response is the failure, if it failed.
func (k *call) query(ctx context.Context, key fsm.Key, q fsm.Query) (fsm.Answer, *response) {
	a, err := k.s.broker.Query(ctx, key, q)
	if err != nil {
		r := k.failure(err)
		return a, &r
	}
	if a.Refusal != fsm.None {
		r := k.refuse(a.Refusal, a.Detail)
		return a, &r
	}
	return a, nil
}

// needSession returns the held session that the request works on, or the failure. If the entity refuses receives, the session
// may have been taken back for it (S-254). The client is told so first, as the partition does.
func (k *call) needSession() (fsm.SessionProof, *response) {
	if k.held == nil && k.addr.sub == fsm.Main && (k.desc.Status == fsm.Disabled || k.desc.Status == fsm.ReceiveDisabled) {
		r := k.refuse(fsm.EntityDisabled, "")
		return fsm.SessionProof{}, &r
	}
	return k.needLock()
}

// needLock returns the held session whose lock the request names, or the failure.
func (k *call) needLock() (fsm.SessionProof, *response) {
	if !k.desc.RequiresSession || k.addr.sub != fsm.Main {
		r := k.refuse(fsm.SessionNotSupported, "")
		return fsm.SessionProof{}, &r
	}
	if k.held == nil {
		r := k.refuse(fsm.SessionLockLost, "")
		return fsm.SessionProof{}, &r
	}
	return k.proof, nil
}

// tokens reads an array of lock tokens, grouped by share.
func (k *call) tokens() (byShare map[int][]fsm.LockToken, bad *response) {
	v, ok := k.field("lock-tokens")
	if !ok {
		r := k.badArgument("lock-tokens are missing")
		return nil, &r
	}
	ids, ok := amqp.ToUUIDs(v)
	if !ok || len(ids) == 0 || len(ids) > maxRequestItems {
		r := k.badArgument("lock-tokens must be an array of 1 to %d uuids", maxRequestItems)
		return nil, &r
	}
	byShare = map[int][]fsm.LockToken{}
	for _, id := range ids {
		token := fsm.LockToken(id)
		share := k.desc.ShareOf(token.Prefix())
		if share < 0 {
			r := k.refuse(fsm.MessageLockLost, "")
			return nil, &r
		}
		byShare[share] = append(byShare[share], token)
	}
	return byShare, nil
}

// numbers reads an array of sequence numbers.
func (k *call) numbers() ([]fsm.SequenceNumber, *response) {
	v, ok := k.field("sequence-numbers")
	if !ok {
		r := k.badArgument("sequence-numbers are missing")
		return nil, &r
	}
	list, ok := amqp.ToInt64s(v)
	if !ok || len(list) == 0 || len(list) > maxRequestItems {
		r := k.badArgument("sequence-numbers must be an array of 1 to %d longs", maxRequestItems)
		return nil, &r
	}
	out := make([]fsm.SequenceNumber, len(list))
	for i, n := range list {
		out[i] = fsm.SequenceNumber(n)
	}
	return out, nil
}

// byShare groups numbers by the share that gave them; -1 is none of this entity's.
func (k *call) byShare(numbers []fsm.SequenceNumber) map[int][]fsm.SequenceNumber {
	groups := map[int][]fsm.SequenceNumber{}
	for _, n := range numbers {
		share := k.desc.ShareOf(n.Prefix())
		groups[share] = append(groups[share], n)
	}
	return groups
}

// maxRequestItems bounds the tokens or numbers of one request (S-181).
const maxRequestItems = 1_000

// charge counts messages that a request sends, and returns the answer if they are refused.
func (k *call) charge(messages, bytes int) *response {
	e := k.s.rates.take(k.sender, messages, bytes)
	if e == nil {
		return nil
	}
	k.s.stats.reject(siteKeyRate)
	bad := k.fail(e)
	return &bad
}

func sortedShares[T any](groups map[int]T) []int {
	shares := make([]int, 0, len(groups))
	for share := range groups {
		shares = append(shares, share)
	}
	slices.Sort(shares)
	return shares
}
