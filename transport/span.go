package transport

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A Span is a station of a message whose application traces it (0096).
type Span struct {
	Trace      [16]byte
	ID, Parent [8]byte
	State      string // of the trace, as its producer wrote it
	Station    Station
	Begin, End time.Time
	Entity     string             // its path
	To         string             // of a forward, the entity that has the message now
	Number     fsm.SequenceNumber // 0 if the front end does not know it
	Attempt    uint32             // of a delivery, from 1
	Verdict    string             // of a settlement
	DeadFor    string             // the reason for which the message is a dead letter, "" if it is none
	Refused    string             // the code of a refusal, "" if the station did its work
}

// Station is where a span belongs.
type Station uint8

// The stations of a message.
const (
	// StationAccept lasts from the last byte of a message until it is stored, and its confirmation is on its way.
	StationAccept Station = iota + 1
	// StationCommit is the part of an accept in which the log takes the message.
	StationCommit
	// StationDeliver lasts from the time at which a message can be received until its first delivery is written. Later
	// deliveries last no time.
	StationDeliver
	// StationSettle lasts from a delivery until its settlement is applied. StationDeadLetter is one that dead-letters.
	StationSettle
	StationDeadLetter
	// StationForward lasts from the time at which a message was taken out of its entity until the next one has it, or has
	// refused it.
	StationForward
)

var stationNames = map[Station]string{
	StationAccept: "accept", StationCommit: "commit", StationDeliver: "deliver", StationSettle: "settle",
	StationDeadLetter: "dead-letter", StationForward: "forward",
}

// String returns the name of the station.
func (s Station) String() string { return stationNames[s] }

// traced is the place of a message, or of one of its spans, in a trace.
type traced = stored.Trace

// traceOf returns the place of a stored message in a trace, nil if nobody traces it.
func (c *Config) traceOf(body []byte) *traced {
	if c.OnSpan == nil {
		return nil
	}
	t, ok := stored.ReadTrace(body)
	if !ok {
		return nil
	}
	return &t
}

// child begins a span below the place.
func child(t *traced, at Station, entity string, begin, end time.Time) Span {
	s := Span{Trace: t.ID, ID: NewSpanID(), Parent: t.Span, State: t.State, Station: at, Begin: begin, End: end, Entity: entity}
	if s.End.Before(s.Begin) { // clocks of two nodes
		s.Begin = s.End
	}
	return s
}

// below is the place of what a span causes.
func (s *Span) below() *traced { return &traced{ID: s.Trace, Span: s.ID, State: s.State} }

// NewSpanID draws an id, which must differ from others and needs no secrecy. None is zero.
func NewSpanID() (id [8]byte) {
	binary.LittleEndian.PutUint64(id[:], 1+rand.Uint64N(math.MaxUint64))
	return id
}

// traceTime is the time if spans are wanted. Otherwise it is zero, and no clock is read.
func (c *Config) traceTime() time.Time {
	if c.OnSpan == nil {
		return time.Time{}
	}
	return time.Now()
}

// tracesOf returns the places of those messages that are traced.
func (c *Config) tracesOf(messages []fsm.Message) (traces []*traced) {
	if c.OnSpan == nil {
		return nil
	}
	for i := range messages {
		if t := c.traceOf(messages[i].Body); t != nil {
			traces = append(traces, t)
		}
	}
	return traces
}

// logged notes that the log has judged the messages now that it was given then.
func (d *inbound) logged(proposed time.Time) {
	if len(d.traces) > 0 {
		d.proposed, d.committed = proposed, time.Now()
		if d.proposed.Before(d.arrived) { // it has joined what was proposed
			d.proposed = d.arrived
		}
	}
}

// traceAccepted tells of the messages of a delivery that is answered now.
func (c *Config) traceAccepted(d *inbound, entity string, now time.Time) {
	if len(d.traces) == 0 {
		return
	}
	refused := ""
	if d.refusal != nil {
		refused = codeOfError(d.refusal).String()
	}
	for _, t := range d.traces {
		accept := child(t, StationAccept, entity, d.arrived, now)
		accept.Refused = refused
		c.OnSpan(accept)
		if !d.committed.IsZero() {
			commit := child(accept.below(), StationCommit, entity, d.proposed, d.committed)
			commit.Refused = refused
			c.OnSpan(commit)
		}
	}
}

// traceDelivered tells of a delivery that is written now, and returns the place of its settlement; nil if nobody traces it.
func (c *Config) traceDelivered(d *fsm.Delivery, from address, now time.Time) *traced {
	t := c.traceOf(d.Body)
	if t == nil {
		return nil
	}
	begin := now
	if d.Attempts == 0 && d.EnqueuedAt != 0 {
		begin = time.UnixMilli(int64(d.EnqueuedAt))
	}
	span := child(t, StationDeliver, from.path(), begin, now)
	span.Number, span.Attempt, span.DeadFor = d.Seq, d.Attempts+1, d.Reason
	c.OnSpan(span)
	return span.below()
}

// traceSettled tells of a settlement whose outcome is known now. The error is what the client gets, nil if nothing was refused.
func (e *egress) traceSettled(s *settlement, path string, refused *amqp.Error, now time.Time) {
	e.c.onLoop()
	at := StationSettle
	if s.item.Verdict == fsm.Kill {
		at = StationDeadLetter
	}
	span := child(s.trace, at, path, s.sent, now)
	span.Number, span.Verdict, span.DeadFor = s.item.Seq, verdictNames[s.item.Verdict], s.item.Reason
	if refused != nil {
		span.Refused = codeOfError(refused).String()
	}
	e.c.cfg.OnSpan(span)
}

// verdictNames are the names of settlements in the semantic conventions of OpenTelemetry, and one of ours.
var verdictNames = map[fsm.Verdict]string{
	fsm.Complete: "complete", fsm.Abandon: "abandon", fsm.Defer: "defer", fsm.Kill: "dead_letter", fsm.Return: "release",
}

// CodeOf is the name of the error that clients get for a refusal, "" for none.
func CodeOf(r fsm.Refusal) string {
	if r == fsm.None {
		return ""
	}
	condition, _ := conditionOf(r)
	return codeOfError(&amqp.Error{Condition: condition}).String()
}

// verdictOf is the error that a client gets for an outcome, nil if nothing was refused.
func (s *Server) verdictOf(why fsm.Refusal, detail string, err error, path string) *amqp.Error {
	switch {
	case err != nil:
		return s.errorOf(err, path)
	case why != fsm.None:
		return s.refusal(why, detail, path)
	}
	return nil
}
