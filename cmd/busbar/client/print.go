package client

import (
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/lines"
)

// shown is a message as people read it, in JSON. The operations port shows messages in the same form.
type shown struct {
	SequenceNumber   int64          `json:"sequenceNumber"`
	State            string         `json:"state,omitempty"`
	MessageID        string         `json:"messageId,omitempty"`
	SessionID        *string        `json:"sessionId,omitempty"`
	EnqueuedAt       *time.Time     `json:"enqueuedAt,omitempty"`
	ScheduledAt      *time.Time     `json:"scheduledAt,omitempty"`
	ExpiresAt        *time.Time     `json:"expiresAt,omitempty"`
	LockedUntil      *time.Time     `json:"lockedUntil,omitempty"`
	LockToken        string         `json:"lockToken,omitempty"` // of a message that stays locked
	DeliveryCount    uint32         `json:"deliveryCount"`
	Subject          string         `json:"subject,omitempty"`
	To               string         `json:"to,omitempty"`
	ReplyTo          string         `json:"replyTo,omitempty"`
	ReplyToSessionID string         `json:"replyToSessionId,omitempty"`
	CorrelationID    string         `json:"correlationId,omitempty"`
	ContentType      string         `json:"contentType,omitempty"`
	PartitionKey     string         `json:"partitionKey,omitempty"`
	DeadReason       string         `json:"deadLetterReason,omitempty"`
	DeadText         string         `json:"deadLetterErrorDescription,omitempty"`
	DeadSource       string         `json:"deadLetterSource,omitempty"`
	Properties       map[string]any `json:"properties,omitempty"`
	Body             string         `json:"body"`
	BodyEncoding     string         `json:"bodyEncoding,omitempty"` // "base64" if the body is no text
	BodyBytes        int            `json:"bodyBytes"`
}

// describe takes a message apart. delivered says that the count is of a delivery under way, which
// the wire does not count yet.
func describe(m *amqp.Message, delivered bool) shown {
	var s shown
	s.SequenceNumber, _ = m.Annotations["x-opt-sequence-number"].(int64)
	s.PartitionKey, _ = m.Annotations["x-opt-partition-key"].(string)
	s.DeadSource, _ = m.Annotations["x-opt-deadletter-source"].(string)
	at := func(name string) *time.Time {
		t, ok := m.Annotations[name].(time.Time)
		if !ok {
			return nil
		}
		t = t.UTC()
		return &t
	}
	s.EnqueuedAt, s.LockedUntil = at("x-opt-enqueued-time"), at("x-opt-locked-until")
	s.ScheduledAt = at("x-opt-scheduled-enqueue-time")
	s.State = "active"
	switch state, _ := m.Annotations["x-opt-message-state"].(int32); state {
	case deferredState:
		s.State = "deferred"
	case scheduledState:
		s.State = "scheduled"
	}
	if m.Header != nil {
		s.DeliveryCount = m.Header.DeliveryCount
		if ttl := m.Header.TTL; ttl > 0 && ttl < math.MaxUint32*time.Millisecond && s.EnqueuedAt != nil && s.State != "scheduled" {
			end := s.EnqueuedAt.Add(ttl)
			s.ExpiresAt = &end
		}
	}
	if delivered {
		s.DeliveryCount++
	}
	if p := m.Properties; p != nil {
		if p.MessageID != nil {
			s.MessageID = fmt.Sprint(p.MessageID)
		}
		if p.CorrelationID != nil {
			s.CorrelationID = fmt.Sprint(p.CorrelationID)
		}
		s.SessionID = p.GroupID
		s.Subject, s.ContentType = deref(p.Subject), deref(p.ContentType)
		s.To, s.ReplyTo, s.ReplyToSessionID = deref(p.To), deref(p.ReplyTo), deref(p.ReplyToGroupID)
	}
	for k, v := range m.ApplicationProperties {
		switch k {
		case "DeadLetterReason":
			s.DeadReason = fmt.Sprint(v)
		case "DeadLetterErrorDescription":
			s.DeadText = fmt.Sprint(v)
		default:
			if s.Properties == nil {
				s.Properties = map[string]any{}
			}
			s.Properties[k] = shownValue(v)
		}
	}
	s.Body, s.BodyEncoding, s.BodyBytes = bodyText(m)
	return s
}

// shownValue is a property as JSON has it. Numbers that a double does not hold, and what JSON does not know, are texts.
func shownValue(v any) any {
	const exact = 1 << 53
	switch v := v.(type) {
	case uint64:
		if v > exact {
			return strconv.FormatUint(v, 10)
		}
	case int64:
		if v > exact || v < -exact {
			return strconv.FormatInt(v, 10)
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
	case float32:
		return shownValue(float64(v))
	case time.Time:
		return v.UTC()
	case nil, bool, string, []byte, uint8, uint16, uint32, int8, int16, int32:
	default:
		return fmt.Sprint(v)
	}
	return v
}

func bodyText(m *amqp.Message) (text, encoding string, bytes int) {
	plain := func(b []byte) (string, string, int) {
		if utf8.Valid(b) {
			return string(b), "", len(b)
		}
		return base64.StdEncoding.EncodeToString(b), "base64", len(b)
	}
	switch {
	case len(m.Data) > 0:
		var all []byte
		for _, d := range m.Data {
			all = append(all, d...)
		}
		return plain(all)
	case m.Value != nil:
		if b, ok := m.Value.([]byte); ok {
			return plain(b)
		}
		text = fmt.Sprint(m.Value)
		return text, "", len(text)
	case len(m.Sequence) > 0:
		text = fmt.Sprint(m.Sequence)
		return text, "", len(text)
	}
	return "", "", 0
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// messagePrinter writes messages as they come: JSON lines, rows under one heading, or as a format says.
type messagePrinter struct {
	w      io.Writer
	form   string // table, wide, json or jsonl
	format *format
	headed bool
}

// newMessagePrinter prints in the form that the flags ask for, or by a format if that is not empty.
func newMessagePrinter(w io.Writer, f *dial.Flags, text string) (*messagePrinter, error) {
	p := &messagePrinter{w: w, form: f.Output}
	switch {
	case f.Form == "jsonl":
		p.form = f.Form
	case f.Wide:
		p.form = "wide"
	}
	if text == "" {
		return p, nil
	}
	if f.Output != "table" || f.Wide {
		return nil, exit.Usagef("--format and --output exclude each other")
	}
	var err error
	p.format, err = newFormat(text)
	return p, err
}

const (
	rowFormat  = "%-16v  %-20s  %-16s  %-5v  %s\n"
	wideFormat = "%-16v  %-9s  %-20s  %-20s  %-16s  %-5v  %-36s  %-16s  %-20s  %s\n"
)

// printEncoded writes a message that the broker has shown, of which m is what a library has read. A line of JSON has all
// that the broker has told.
func (p *messagePrinter) printEncoded(payload []byte, m *amqp.Message) error {
	if p.form != "jsonl" || p.format != nil {
		return p.print(describe(m, false))
	}
	line, err := lines.FromBroker(payload)
	if err != nil {
		return err
	}
	text, err := line.Line()
	if err == nil {
		_, err = p.w.Write(append(text, '\n'))
	}
	return err
}

func (p *messagePrinter) print(s shown) error {
	switch {
	case p.format != nil:
		_, err := io.WriteString(p.w, p.format.text(&s))
		return err
	case p.form == "json" || p.form == "jsonl":
		return dial.PrintJSON(p.w, s)
	}
	row := func(cells ...any) error {
		form := rowFormat
		if p.form == "wide" {
			form = wideFormat
		} else {
			cells = []any{cells[0], cells[2], cells[4], cells[5], cells[9]}
		}
		_, err := fmt.Fprintf(p.w, form, cells...)
		return err
	}
	if !p.headed {
		p.headed = true
		if err := row("NUMBER", "STATE", "ENQUEUED", "EXPIRES", "SESSION", "COUNT", "MESSAGE", "SUBJECT", "TYPE", "BODY"); err != nil {
			return err
		}
	}
	at := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.Format("2006-01-02T15:04:05Z")
	}
	session := "-"
	if s.SessionID != nil {
		session = printable(*s.SessionID)
	}
	body := printable(s.Body)
	if s.DeadReason != "" {
		body += "  [" + printable(s.DeadReason) + "]"
	}
	if s.LockToken != "" {
		body = s.LockToken + "  " + body
	}
	return row(s.SequenceNumber, s.State, at(s.EnqueuedAt), at(s.ExpiresAt), session, s.DeliveryCount, textCell(s.MessageID), textCell(s.Subject),
		textCell(s.ContentType), body)
}

// textCell is a text that others sent, in a cell of a table.
func textCell(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// printable keeps what others sent from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == ' ' {
			return r
		}
		return '·'
	}, s)
}
