package client

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// shown is a message as receive and peek print it: one JSON object per line, or a row.
type shown struct {
	SequenceNumber int64          `json:"sequenceNumber"`
	MessageID      string         `json:"messageId,omitempty"`
	SessionID      *string        `json:"sessionId,omitempty"`
	EnqueuedAt     *time.Time     `json:"enqueuedAt,omitempty"`
	DeliveryCount  uint32         `json:"deliveryCount"`
	Subject        string         `json:"subject,omitempty"`
	ContentType    string         `json:"contentType,omitempty"`
	CorrelationID  string         `json:"correlationId,omitempty"`
	DeadReason     string         `json:"deadLetterReason,omitempty"`
	DeadText       string         `json:"deadLetterErrorDescription,omitempty"`
	Properties     map[string]any `json:"properties,omitempty"`
	Body           string         `json:"body"`
	BodyEncoding   string         `json:"bodyEncoding,omitempty"` // "base64" if the body is no text
}

// describe takes a message apart. delivered says that the count is of a delivery under way, which
// the wire does not count yet.
func describe(m *amqp.Message, delivered bool) shown {
	var s shown
	if n, ok := m.Annotations["x-opt-sequence-number"].(int64); ok {
		s.SequenceNumber = n
	}
	if at, ok := m.Annotations["x-opt-enqueued-time"].(time.Time); ok {
		at = at.UTC()
		s.EnqueuedAt = &at
	}
	if m.Header != nil {
		s.DeliveryCount = m.Header.DeliveryCount
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
			s.Properties[k] = v
		}
	}
	s.Body, s.BodyEncoding = bodyText(m)
	return s
}

func bodyText(m *amqp.Message) (text, encoding string) {
	switch {
	case len(m.Data) > 0:
		var all []byte
		for _, d := range m.Data {
			all = append(all, d...)
		}
		if utf8.Valid(all) {
			return string(all), ""
		}
		return base64.StdEncoding.EncodeToString(all), "base64"
	case m.Value != nil:
		return fmt.Sprint(m.Value), ""
	case len(m.Sequence) > 0:
		return fmt.Sprint(m.Sequence), ""
	}
	return "", ""
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// messagePrinter writes messages as they come: JSON lines, or rows under one heading.
type messagePrinter struct {
	w      io.Writer
	json   bool
	headed bool
}

const rowFormat = "%-16v  %-20s  %-16s  %-5v  %s\n"

func (p *messagePrinter) print(s shown) error {
	if p.json {
		return dial.PrintJSON(p.w, s)
	}
	if !p.headed {
		p.headed = true
		if _, err := fmt.Fprintf(p.w, rowFormat, "NUMBER", "ENQUEUED", "SESSION", "COUNT", "BODY"); err != nil {
			return err
		}
	}
	at := "-"
	if s.EnqueuedAt != nil {
		at = s.EnqueuedAt.Format("2006-01-02T15:04:05Z")
	}
	session := "-"
	if s.SessionID != nil {
		session = printable(*s.SessionID)
	}
	body := printable(s.Body)
	if s.DeadReason != "" {
		body += "  [" + printable(s.DeadReason) + "]"
	}
	_, err := fmt.Fprintf(p.w, rowFormat, s.SequenceNumber, at, session, s.DeliveryCount, body)
	return err
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
