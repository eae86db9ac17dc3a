package fsm

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// goldenCommands holds one command of every kind with every field set.
func goldenCommands() map[string]Command {
	proof := SessionProof{ID: "s1", Token: goldenToken(9)}
	return map[string]Command{
		"enqueue": &Enqueue{Messages: []Message{
			{SessionID: "s1", HasSession: true, MessageID: "m-1", TTL: 60000, ScheduledAt: 1700000000000, Body: []byte("first")},
			{Body: []byte("second")},
		}},
		"enqueue_keyed": &Enqueue{Messages: []Message{
			{SessionID: "s1", HasSession: true, MessageID: "m-1", PartitionKey: "k", TTL: 60000, ScheduledAt: 1700000000000, Body: []byte("first")},
			{Body: []byte("second")},
		}},
		"lock": &Lock{Session: proof, Max: 10, MaxBytes: 1 << 20, Delete: true, Wait: 60000},
		"settle": &Settle{Session: proof, Items: []SettleItem{
			{Seq: 7, Token: goldenToken(1), Verdict: Complete},
			{Seq: 8, Token: goldenToken(2), Verdict: Kill, Delay: 5, Reason: "r", Description: "d",
				Properties: []Property{{Key: "k", Value: []byte{0x54, 1}}}},
		}},
		"renew":             &Renew{Tokens: []LockToken{goldenToken(1), goldenToken(2)}},
		"accept_session":    &AcceptSession{ID: "s1", Next: true, Wait: 1000},
		"accept_shared":     &AcceptSession{ID: "s1", Next: true, Wait: 1000, Shared: true, Presented: goldenToken(8)},
		"leave_session":     &ReleaseSession{Session: proof, Orderly: true, Unsure: true, Unsent: []LockToken{goldenToken(5)}},
		"watch_session":     &WatchSession{Session: proof, Wait: 60000},
		"renew_session":     &RenewSession{Session: proof},
		"release_session":   &ReleaseSession{Session: proof, Orderly: true},
		"set_session_state": &SetSessionState{Session: proof, State: []byte{0, 1, 2}, Clear: true},
		"receive":           &Receive{Session: proof, Numbers: []SequenceNumber{1, 1 << 48}, Delete: true},
		"delete_messages":   &DeleteMessages{Session: proof, Before: 1700000000000, Max: 4000},
		"cancel":            &Cancel{Numbers: []SequenceNumber{5}},
		"drop_locks":        &DropLocks{Tokens: []LockToken{goldenToken(4)}, Grace: 5000},
		"drop_pumps":        &DropPumps{Node: 0xfeed, Pumps: []uint64{1, 300}},
		"node_lost":         &NodeLost{Node: 0xfeed},
		"put_entity":        &PutEntity{Descriptor: goldenDescriptor()},
		"drop_entity":       &DropEntity{},
		"revoke_by":         &Revoke{Number: 1 << 48, Node: 0xfeed, Pump: 300, HasSession: true, Session: "s1", Operator: "root"},
		"revoke":            &Revoke{Number: 1 << 48, Node: 0xfeed, Pump: 300, HasSession: true, Session: "s1"},
		"become_leader":     &BecomeLeader{Node: "n1"},
		"tick":              &Tick{Listeners: []EntityID{1, 2}},
		"barrier":           &Barrier{},
		"hold_forwards":     &HoldForwards{Hold: 300, For: 30_000, Renew: true},
		"restore_begin": &Restore{Step: RestoreBegin, Counters: ShareCounters{Arrival: 300, LastTransfer: 2,
			Moves: [4]uint64{3, 4, 5, 6}, Histories: [3]uint64{7, 8, 9}, Touched: 1700000000000, Forgotten: 1700000000001,
			Drops: Drops{DropQuota: 4}}},
		"restore":      goldenRestore(),
		"restore_end":  &Restore{Step: RestoreEnd},
		"touch":        &Touch{},
		"rehome_close": &Rehome{Step: RehomeClose, Epoch: 300},
		"rehome_bodies": &Rehome{Step: RehomeBodies, Epoch: 300, Bodies: []Message{{Body: []byte("first")}, {Body: []byte("second")}},
			Places: []BodyRef{{Index: 400, Offset: 70}, {Index: 401, Offset: 500}}},
		"rehome_image": &Rehome{Step: RehomeImage, Epoch: 300, At: 500, Image: []byte("piece")},
		"rehome_seal":  &Rehome{Step: RehomeSeal, Epoch: 300, Size: 500, Sum: 0x01020304},
		"redrive": &Redrive{HasReason: true, Reason: "r", HasSession: true, Session: "s", From: 1, Until: 2,
			After: 3, Max: 4},
		"chosen": &Redrive{To: 5, Numbers: []SequenceNumber{7, 300}},
		"discard": &Redrive{HasReason: true, Reason: "r", HasSession: true, Session: "s", From: 1, Until: 2,
			After: 3, Max: 4, Discard: true},
		"body_part": &BodyPart{Upload: 77, Number: 2, Body: []byte("part")},
		"large": &Enqueue{Messages: []Message{{Body: []byte("whole")},
			{MessageID: "m-1", Body: []byte("head"), Rest: Upload{ID: 77, Parts: 3, Bytes: 700_000}}}},
		"large_transfer": &Transfer{To: 5, Messages: []Message{{Body: []byte("head"), Rest: Upload{ID: 78, Parts: 1, Bytes: 9}}}},
		"reserve":        &Reserve{Count: 3},
		"enqueue_reserved": &Enqueue{Messages: []Message{{Body: []byte("first")},
			{MessageID: "m-1", ScheduledAt: 1700000000000, Body: []byte("second"), Reserved: 1<<48 | 7}}},
		"transfer_reserved": &Transfer{To: 5, Messages: []Message{{ScheduledAt: 1700000000000, Body: []byte("head"),
			Rest: Upload{ID: 78, Parts: 1, Bytes: 9}, Reserved: 300}}},
		"large_state": &SetSessionState{Session: proof, Rest: Upload{ID: 79, Parts: 2, Bytes: 300_000}},
		"change":      &Change{Data: []byte(`{"delete":1}`)},
		"redrive_to": &Redrive{HasReason: true, Reason: "r", HasSession: true, Session: "s", From: 1, Until: 2,
			After: 3, Max: 4, To: 5},
		"enqueue_moved": &Enqueue{
			Origin: &Origin{Entity: 4, Partition: 5, Sub: TransferQueue, Below: 6, Numbers: []uint64{7, 300}},
			Messages: []Message{
				{SessionID: "s1", HasSession: true, MessageID: "m-1", PartitionKey: "k", TTL: 60000,
					ScheduledAt: 1700000000000, Body: []byte("first"), Carried: &Carried{EnqueuedSeq: 8, Hops: 2,
						Reason: "r", Description: "d", Source: "q",
						Properties: []Property{{Key: "k", Value: []byte{0x54, 1}}, {Key: "gone"}},
						System:     []SystemValue{{Property: rule.To, Value: []byte{0xa1, 1, 'x'}}, {Property: rule.Label}}}},
				{Body: []byte("second")},
			}},
		"commit": &Commit{ID: []byte{1, 2, 3}, Ops: []Op{
			{Entity: 12, Sub: DeadLetter, Command: &Settle{Session: proof,
				Items: []SettleItem{{Seq: 7, Token: goldenToken(1), Verdict: Complete}}}},
			{Entity: 13, Command: &Enqueue{Messages: []Message{{MessageID: "m", Body: []byte("sent")}}}},
			{Entity: 12, Command: &Transfer{To: 14, Messages: []Message{{MessageID: "m", Body: []byte("away")}}}},
		}},
		"transfer": &Transfer{To: 14, Messages: []Message{
			{SessionID: "s1", HasSession: true, MessageID: "m-1", PartitionKey: "k", TTL: 60000,
				ScheduledAt: 1700000000000, Body: []byte("first")}, {Body: []byte("second")}}},
		"forward": &Forward{Epoch: 3, To: 4, Max: 5, MaxBytes: 6,
			Done: []Moved{{Number: 7}, {Number: 8, Refusal: QuotaExceeded, Detail: "full"}}},
	}
}

// entryFields walks over an entry as docs/formats/entry.md tells it.
func (a *annotator) entryFields() {
	a.byte("magic")
	a.byte("version")
	a.time("Wall")
	a.time("Lease")
	a.uint("Epoch")
	a.fixed("Seed", 32)
	a.list("Requests", func(q string) {
		a.id(q + ".ID")
		a.uint(q + ".Entity")
		a.byte(q + ".Sub")
		a.command(q + ".Command")
	})
}

func (a *annotator) id(name string) {
	a.word(name + ".Node")
	a.uint(name + ".Pump")
	a.uint(name + ".Counter")
}

// command walks over a command, which is a kind and its fields.
func (a *annotator) command(c string) {
	kind := a.byte(c + ".kind")
	a.fields[len(a.fields)-1].value += fmt.Sprintf(" (%s)", a.typeOf(c))
	a.fieldsOf(kind, c)
}

func (a *annotator) fieldsOf(kind uint8, c string) {
	switch kind {
	case kindEnqueue, kindEnqueueKeyed, kindEnqueueMoved, kindTransfer, kindLarge, kindReserved, kindBodyPart,
		kindReserve:
		a.sent(kind, c)
	case kindLock, kindSettle, kindRenew, kindReceive, kindCancel, kindDropLocks, kindDeleteMessages, kindRedrive,
		kindRedriveTo, kindDiscard, kindChosen:
		a.received(kind, c)
	case kindAcceptSession, kindAcceptShared, kindRenewSession, kindReleaseSession, kindLeaveSession,
		kindSetSessionState, kindLargeState, kindWatchSession:
		a.ofSession(kind, c)
	default:
		a.internal(kind, c)
	}
}

func (a *annotator) sent(kind uint8, c string) {
	switch kind {
	case kindEnqueue:
		a.list(c+".Messages", a.message)
	case kindEnqueueKeyed:
		a.list(c+".Messages", a.keyed)
	case kindTransfer:
		a.uint(c + ".To")
		a.list(c+".Messages", a.keyed)
	case kindEnqueueMoved:
		if a.bool(c + ".has origin") {
			o := c + ".Origin"
			a.uint(o + ".Entity")
			a.uint(o + ".Partition")
			a.byte(o + ".Sub")
			a.uint(o + ".Below")
			a.numbers(o + ".Numbers")
		}
		a.list(c+".Messages", a.moved)
	case kindLarge:
		for range a.uint(c + ".messages in parts") {
			a.upload(fmt.Sprintf("%s.Messages[%d].Rest", c, a.uint(c+".place")))
		}
		a.command(c)
	case kindReserved:
		for range a.uint(c + ".messages with reserved numbers") {
			a.uint(fmt.Sprintf("%s.Messages[%d].Reserved", c, a.uint(c+".place")))
		}
		a.command(c)
	case kindBodyPart:
		a.uint(c + ".Upload")
		a.uint(c + ".Number")
		a.text(c + ".Body")
	case kindReserve:
		a.uint(c + ".Count")
	}
}

func (a *annotator) message(m string) {
	a.bool(m + ".HasSession")
	a.text(m + ".SessionID")
	a.text(m + ".MessageID")
	a.time(m + ".TTL")
	a.time(m + ".ScheduledAt")
	a.text(m + ".Body")
}

func (a *annotator) keyed(m string) {
	a.text(m + ".PartitionKey")
	a.message(m)
}

func (a *annotator) moved(m string) {
	a.text(m + ".PartitionKey")
	if a.bool(m + ".has carried") {
		a.carried(m + ".Carried")
	}
	a.message(m)
}

func (a *annotator) carried(c string) {
	a.uint(c + ".EnqueuedSeq")
	a.byte(c + ".Hops")
	a.text(c + ".Reason")
	a.text(c + ".Description")
	a.text(c + ".Source")
	a.properties(c + ".Properties")
	a.list(c+".System", func(v string) {
		a.byte(v + ".Property")
		a.text(v + ".Value")
	})
}

func (a *annotator) upload(u string) {
	a.uint(u + ".ID")
	a.uint(u + ".Parts")
	a.uint(u + ".Bytes")
}

func (a *annotator) received(kind uint8, c string) {
	switch kind {
	case kindLock:
		a.proof(c + ".Session")
		a.uint(c + ".Max")
		a.uint(c + ".MaxBytes")
		a.bool(c + ".Delete")
		a.time(c + ".Wait")
	case kindSettle:
		a.proof(c + ".Session")
		a.list(c+".Items", a.settled)
	case kindRenew:
		a.tokens(c + ".Tokens")
	case kindReceive:
		a.proof(c + ".Session")
		a.numbers(c + ".Numbers")
		a.bool(c + ".Delete")
	case kindCancel:
		a.numbers(c + ".Numbers")
	case kindDropLocks:
		a.tokens(c + ".Tokens")
		a.time(c + ".Grace")
	case kindDeleteMessages:
		a.proof(c + ".Session")
		a.time(c + ".Before")
		a.uint(c + ".Max")
	case kindChosen:
		a.uint(c + ".To")
		a.bool(c + ".Discard")
		a.numbers(c + ".Numbers")
	case kindRedrive, kindRedriveTo, kindDiscard:
		a.bool(c + ".HasReason")
		a.text(c + ".Reason")
		a.bool(c + ".HasSession")
		a.text(c + ".Session")
		a.time(c + ".From")
		a.time(c + ".Until")
		a.uint(c + ".After")
		a.uint(c + ".Max")
		if kind == kindRedriveTo {
			a.uint(c + ".To")
		}
	}
}

func (a *annotator) settled(i string) {
	a.uint(i + ".Seq")
	a.fixed(i+".Token", len(LockToken{}))
	a.byte(i + ".Verdict")
	a.time(i + ".Delay")
	a.text(i + ".Reason")
	a.text(i + ".Description")
	a.properties(i + ".Properties")
}

func (a *annotator) proof(p string) {
	a.text(p + ".ID")
	if a.bool(p + ".has token") {
		a.fixed(p+".Token", len(LockToken{}))
	}
}

func (a *annotator) properties(name string) {
	a.list(name, func(p string) {
		a.text(p + ".Key")
		a.text(p + ".Value")
	})
}

func (a *annotator) tokens(name string) {
	a.list(name, func(token string) { a.fixed(token, len(LockToken{})) })
}

func (a *annotator) numbers(name string) {
	a.list(name, func(n string) { a.uint(n) })
}

func (a *annotator) ofSession(kind uint8, c string) {
	switch kind {
	case kindAcceptSession, kindAcceptShared:
		a.text(c + ".ID")
		a.bool(c + ".Next")
		a.time(c + ".Wait")
		if kind == kindAcceptShared {
			a.fixed(c+".Presented", len(LockToken{}))
		}
		return
	}
	a.proof(c + ".Session")
	switch kind {
	case kindReleaseSession, kindLeaveSession:
		a.bool(c + ".Orderly")
		if kind == kindLeaveSession {
			a.bool(c + ".Unsure")
			a.tokens(c + ".Unsent")
		}
	case kindSetSessionState:
		a.bool(c + ".Clear")
		a.text(c + ".State")
	case kindLargeState:
		a.upload(c + ".Rest")
	case kindWatchSession:
		a.time(c + ".Wait")
	}
}

func (a *annotator) internal(kind uint8, c string) {
	switch kind {
	case kindCommit:
		a.text(c + ".ID")
		a.list(c+".Ops", func(op string) {
			a.uint(op + ".Entity")
			a.byte(op + ".Sub")
			a.command(op + ".Command")
		})
	case kindForward:
		a.uint(c + ".Epoch")
		a.list(c+".Done", func(m string) {
			a.uint(m + ".Number")
			a.byte(m + ".Refusal")
			a.text(m + ".Detail")
		})
		a.uint(c + ".To")
		a.uint(c + ".Max")
		a.uint(c + ".MaxBytes")
	case kindDropPumps:
		a.word(c + ".Node")
		a.numbers(c + ".Pumps")
	case kindNodeLost:
		a.word(c + ".Node")
	case kindPutEntity:
		a.descriptor(c + ".Descriptor")
	case kindBecomeLeader:
		a.text(c + ".Node")
	case kindTick:
		a.numbers(c + ".Listeners")
	case kindRevoke, kindRevokeBy:
		a.uint(c + ".Number")
		a.word(c + ".Node")
		a.uint(c + ".Pump")
		a.bool(c + ".HasSession")
		a.text(c + ".Session")
		if kind == kindRevokeBy {
			a.text(c + ".Operator")
		}
	case kindChange:
		a.text(c + ".Data")
	case kindHoldForwards:
		a.uint(c + ".Hold")
		a.time(c + ".For")
		a.bool(c + ".Renew")
	case kindRestore:
		a.restore(c)
	case kindRehome:
		a.rehome(c)
	case kindDropEntity, kindBarrier, kindTouch:
	default:
		a.t.Fatalf("nothing tells the fields of kind %d", kind)
	}
}

// descriptor walks over an entity's description, whose first byte says how far it goes.
func (a *annotator) descriptor(d string) {
	version := a.byte(d + ".format")
	a.uint(d + ".ID")
	a.uint(d + ".Version")
	a.byte(d + ".Kind")
	a.byte(d + ".Status")
	a.text(d + ".Name")
	a.uint(d + ".Parent")
	a.numbers(d + ".Partitions")
	for _, name := range []string{"Partitioned", "RequiresSession", "DeadLetterOnExpiration", "NoDeadLetter",
		"DetectDuplicates", "DeadLetterOnFilterError", "EnableBatched", "EnableExpress", "SupportOrdering",
		"FilterBeforePublish", "PartitionSubscriptions"} {
		a.bool(d + "." + name)
	}
	for _, name := range []string{"LockDuration", "DefaultTTL", "DuplicateWindow", "AutoDeleteOnIdle", "CreatedAt",
		"UpdatedAt"} {
		a.time(d + "." + name)
	}
	for _, name := range []string{"MaxDelivery", "MaxMessageBytes", "MaxSizeMegabytes", "MaxMessageKilobytes",
		"MaxSizeBytes"} {
		a.uint(d + "." + name)
	}
	a.text(d + ".ForwardTo")
	a.text(d + ".ForwardDeadLettersTo")
	a.text(d + ".UserMetadata")
	a.list(d+".AuthRules", func(r string) {
		a.byte(r + ".rights")
		a.text(r + ".Name")
		a.text(r + ".PrimaryKey")
		a.text(r + ".SecondaryKey")
		a.time(r + ".CreatedAt")
		a.time(r + ".ModifiedAt")
	})
	if version > descriptorVersion1 {
		a.histories(d)
	}
	if version > descriptorVersion2 {
		a.list(d+".Rules", func(r string) {
			a.text(r + ".Name")
			a.time(r + ".CreatedAt")
			a.text(r + ".Source")
		})
	}
	if version == descriptorVersion {
		a.numbers(d + ".Prefixes")
	}
}

// histories walks over what version 2 of a description has more than version 1.
func (a *annotator) histories(d string) {
	a.bool(d + ".ProcessedHistory")
	a.bool(d + ".ProcessedHistoryBody")
	a.bool(d + ".AcceptedHistory")
	a.uint(d + ".HistoryCount")
	a.time(d + ".HistoryAge")
	a.uint(d + ".HistoryMaxBytes")
	a.time(d + ".RetryBackoff.Min")
	a.time(d + ".RetryBackoff.Max")
	a.uint(d + ".RetryBackoff.Multiplier")
	a.uint(d + ".RetryBackoff.Jitter")
}
