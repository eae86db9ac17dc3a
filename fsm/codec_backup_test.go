package fsm

import (
	"fmt"
	"strings"
)

// goldenRestore has every field of a page set.
func goldenRestore() *Restore {
	record := RestoredRecord{Kind: Processed, HistoryRecord: HistoryRecord{Order: 1, Number: 2, MessageID: "m-1",
		SessionID: "s1", EnqueuedAt: 1700000000000, At: 1700000000001, Deliveries: 3, By: RequestID{4, 5, 6}, End: Completed,
		EndedAt: 1700000000002}}
	return &Restore{Step: RestorePage,
		Bodies: []Message{{Body: []byte("whole")}, {Body: []byte("head"), Rest: Upload{ID: 77, Parts: 3, Bytes: 700_000}}},
		Uses: [][]BodyUse{{{Entity: 8, Message: RestoredMessage{Sub: DeadLetter, Arrival: 300, State: StateDeferred,
			Attempts: 2, At: 1700000000000, Expires: 1700000000001, MessageID: "m-1", HasSession: true, SessionID: "s1",
			Rest: 5000, HasFirst: true, Carried: &Carried{EnqueuedSeq: 8, Hops: 2, Reason: "r", Description: "d",
				Source: "q", Properties: []Property{{Key: "k", Value: []byte{0x54, 1}}}}, ScheduledAt: 1700000000003,
			InSession: true, DiedIn: "s2", To: 9, Reserved: 10, Stuck: true, Transit: 11, TransitTo: 12}}},
			{{IsRecord: true, Record: record}}},
		Sessions: []RestoredSession{{ID: "s1", HasState: true, State: []byte("state"), StateAt: 1700000000000, Rest: 7},
			{ID: "s2", HasState: true, StateAt: 1700000000000, Parts: Upload{ID: 79, Parts: 2, Bytes: 300_000}}},
		IDs:     []RestoredID{{Hash: [16]byte{1, 2, 3}, At: 1700000000000, Arrival: 4}},
		Records: []RestoredRecord{{Kind: Accepted, HistoryRecord: HistoryRecord{Order: 9, Number: 1}, Arrival: 1}},
		Origins: []RestoredOrigin{{Entity: 4, Partition: 5, Sub: TransferQueue, Below: 6,
			Decided: []Moved{{Number: 7}, {Number: 300, Refusal: QuotaExceeded}}}},
	}
}

func (a *annotator) restore(c string) {
	switch RestoreStep(a.byte(c + ".Step")) {
	case RestoreBegin:
		a.uint(c + ".Counters.Arrival")
		a.uint(c + ".Counters.LastTransfer")
		for range TransferQueue + 1 {
			a.uint(c + ".Counters.last in transit")
		}
		for range Releases + 1 {
			a.uint(c + ".Counters.last of a history")
		}
		a.time(c + ".Counters.Touched")
		a.time(c + ".Counters.Forgotten")
		for range a.uint(c + ".Counters.reasons") {
			a.uint(c + ".Counters.dropped")
		}
		return
	}
	uses := 0
	a.list(c+".Bodies", func(b string) {
		a.upload(b + ".Rest")
		a.text(b + ".Body")
		a.list(fmt.Sprintf("%s.Uses[%d]", c, uses), a.use)
		uses++
	})
	a.list(c+".Sessions", func(s string) {
		a.text(s + ".ID")
		a.bool(s + ".HasState")
		a.text(s + ".State")
		a.time(s + ".StateAt")
		a.upload(s + ".Parts")
		a.time(s + ".Rest")
	})
	a.list(c+".IDs", func(s string) {
		a.fixed(s+".Hash", 16)
		a.time(s + ".At")
		a.uint(s + ".Arrival")
	})
	a.list(c+".Records", a.record)
	a.list(c+".Origins", func(o string) {
		a.uint(o + ".Entity")
		a.uint(o + ".Partition")
		a.byte(o + ".Sub")
		a.uint(o + ".Below")
		a.list(o+".Decided", func(m string) {
			a.uint(m + ".Number")
			a.byte(m + ".Refusal")
		})
	})
}

func (a *annotator) use(u string) {
	a.uint(u + ".Entity")
	if a.bool(u + ".IsRecord") {
		a.record(u + ".Record")
		return
	}
	m := u + ".Message"
	a.byte(m + ".Sub")
	a.uint(m + ".Arrival")
	a.byte(m + ".State")
	a.uint(m + ".Attempts")
	a.time(m + ".At")
	a.time(m + ".Expires")
	a.text(m + ".MessageID")
	a.bool(m + ".HasSession")
	a.text(m + ".SessionID")
	a.time(m + ".Rest")
	a.bool(m + ".HasFirst")
	if a.bool(m + ".has carried") {
		a.carried(m + ".Carried")
	}
	a.time(m + ".ScheduledAt")
	a.bool(m + ".InSession")
	a.text(m + ".DiedIn")
	a.uint(m + ".To")
	a.uint(m + ".Reserved")
	a.bool(m + ".Stuck")
	a.uint(m + ".Transit")
	a.uint(m + ".TransitTo")
}

func (a *annotator) record(h string) {
	a.byte(h + ".Kind")
	a.uint(h + ".Order")
	a.uint(h + ".Number")
	a.text(h + ".MessageID")
	a.text(h + ".SessionID")
	a.time(h + ".EnqueuedAt")
	a.time(h + ".At")
	a.uint(h + ".Deliveries")
	a.id(h + ".By")
	end := HistoryEnd(a.byte(h + ".End"))
	a.time(h + ".EndedAt")
	a.uint(h + ".Ref.Index")
	a.uint(h + ".Ref.Offset")
	a.uint(h + ".Ref.Length")
	if end == Released {
		a.text(h + ".Operator")
	}
	a.uint(h + ".Arrival")
}

func (a *annotator) rehome(c string) {
	step := RehomeStep(a.byte(c + ".Step"))
	a.uint(c + ".Epoch")
	switch step {
	case RehomeBodies:
		a.list(c+".Bodies", func(b string) {
			place := strings.Replace(b, "Bodies", "Places", 1)
			a.uint(place + ".Index")
			a.uint(place + ".Offset")
			a.text(b + ".Body")
		})
	case RehomeImage:
		a.uint(c + ".At")
		a.text(c + ".Image")
	case RehomeSeal:
		a.uint(c + ".Size")
		a.uint(c + ".Sum")
	}
}
