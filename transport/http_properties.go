package transport

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// brokerHeader carries the broker's properties of a message as a JSON object.
const brokerHeader = "BrokerProperties"

// brokerProperties are the members of that object. A sender may set the first ones; the others tell a
// receiver. Unknown members are ignored.
type brokerProperties struct {
	CorrelationID    *string  `json:"CorrelationId,omitempty"`
	Label            *string  `json:"Label,omitempty"`
	MessageID        *string  `json:"MessageId,omitempty"`
	PartitionKey     *string  `json:"PartitionKey,omitempty"`
	ViaPartitionKey  *string  `json:"ViaPartitionKey,omitempty"`
	ReplyTo          *string  `json:"ReplyTo,omitempty"`
	ReplyToSessionID *string  `json:"ReplyToSessionId,omitempty"`
	SessionID        *string  `json:"SessionId,omitempty"`
	To               *string  `json:"To,omitempty"`
	Persistence      *bool    `json:"ForcePersistence,omitempty"` // what is acknowledged is durable anyway
	Scheduled        *string  `json:"ScheduledEnqueueTimeUtc,omitempty"`
	TimeToLive       *seconds `json:"TimeToLive,omitempty"`
	TimeSpan         *string  `json:"TimeToLiveTimeSpan,omitempty"` // in batches

	DeliveryCount    *uint32 `json:"DeliveryCount,omitempty"`
	EnqueuedNumber   *int64  `json:"EnqueuedSequenceNumber,omitempty"`
	SequenceNumber   *int64  `json:"SequenceNumber,omitempty"`
	Enqueued         *string `json:"EnqueuedTimeUtc,omitempty"`
	LockedUntil      *string `json:"LockedUntilUtc,omitempty"`
	LockToken        *string `json:"LockToken,omitempty"`
	State            *string `json:"State,omitempty"`
	DeadLetterSource *string `json:"DeadLetterSource,omitempty"`
}

// seconds is a number, or a text that is one.
type seconds float64

// UnmarshalJSON reads both forms.
func (s *seconds) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Errorf("%s is no number of seconds", refusal.Clip(string(b)))
	}
	*s = seconds(n)
	return nil
}

// life returns the time to live, 0 if there is none.
func (p *brokerProperties) life() (fsm.Millis, error) {
	var ms float64
	switch {
	case p.TimeSpan != nil:
		d, err := parseTimeSpan(*p.TimeSpan)
		if err != nil {
			return 0, err
		}
		ms = d
	case p.TimeToLive != nil:
		ms = float64(*p.TimeToLive) * 1000
	default:
		return 0, nil
	}
	switch {
	case ms < 1:
		return 0, fmt.Errorf("TimeToLive must be positive") // S-205
	case ms >= float64(fsm.Unlimited):
		return 0, nil // the largest TimeSpan is what .NET calls no limit
	}
	return fsm.Millis(ms), nil
}

// parseTimeSpan reads the .NET form [d.]hh:mm:ss[.fraction], in milliseconds.
func parseTimeSpan(text string) (float64, error) {
	bad := fmt.Errorf("%q is no time span of the form d.hh:mm:ss", refusal.Clip(text))
	days, clock := 0.0, text
	if at := strings.IndexByte(text, '.'); at >= 0 && at < strings.IndexByte(text, ':') {
		n, err := strconv.ParseUint(text[:at], 10, 32)
		if err != nil {
			return 0, bad
		}
		days, clock = float64(n), text[at+1:]
	}
	parts := strings.Split(clock, ":")
	if len(parts) != 3 {
		return 0, bad
	}
	var values [3]float64
	for i, limit := range [...]float64{24, 60, 60} {
		n, err := strconv.ParseFloat(parts[i], 64)
		if err != nil || !(n >= 0 && n < limit) {
			return 0, bad
		}
		values[i] = n
	}
	return (((days*24+values[0])*60+values[1])*60 + values[2]) * 1000, nil
}

// parseHTTPTime reads a time of HTTP, or one of RFC 3339.
func parseHTTPTime(text string) (time.Time, bool) {
	if at, err := http.ParseTime(text); err == nil {
		return at, true
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// section writes the properties and annotations of a message.
func (p *brokerProperties) sections(dst []byte, contentType string) ([]byte, error) {
	life, err := p.life()
	if err != nil {
		return nil, err
	}
	properties := amqp.Properties{
		To: optional(p.To), Subject: optional(p.Label), ReplyTo: optional(p.ReplyTo),
		GroupID: optional(p.SessionID), ReplyToGroupID: optional(p.ReplyToSessionID),
	}
	if contentType != "" {
		properties.ContentType = []byte(contentType)
	}
	if p.MessageID != nil && *p.MessageID != "" {
		properties.MessageID = amqp.AppendString(nil, *p.MessageID)
	}
	if p.CorrelationID != nil {
		properties.CorrelationID = amqp.AppendString(nil, *p.CorrelationID)
	}
	header := amqp.Header{Durable: true}
	if life != 0 {
		header.TTL = amqp.Some(uint32(min(life, unlimitedTTL)))
	}
	if life > unlimitedTTL { // the rest is said by two times, see timeToLive
		now := nowWall()
		properties.CreationTime = amqp.Some(amqp.Timestamp(now))
		properties.AbsoluteExpiryTime = amqp.Some(amqp.Timestamp(now.After(life)))
	}
	dst = amqp.AppendHeader(dst, header)
	w := amqp.BeginMapSection(dst, amqp.CodeMessageAnnotations)
	if p.PartitionKey != nil {
		w.String(annPartitionKey, *p.PartitionKey)
	}
	if p.ViaPartitionKey != nil {
		w.String(annViaPartitionKey, *p.ViaPartitionKey)
	}
	if p.Scheduled != nil {
		at, ok := parseHTTPTime(*p.Scheduled)
		if !ok || at.UnixMilli() < 0 {
			return nil, fmt.Errorf("ScheduledEnqueueTimeUtc %q is no time of RFC 1123", refusal.Clip(*p.Scheduled))
		}
		w.Timestamp(annScheduledTime, amqp.Timestamp(at.UnixMilli()))
	}
	return amqp.AppendProperties(w.End(), &properties), nil
}

func optional(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// transportHeaders are headers that say something about the request and nothing about the message.
var transportHeaders = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Authorization", "Brokerproperties",
	"Cache-Control", "Connection", "Content-Encoding", "Content-Language", "Content-Length", "Content-Type",
	"Cookie", "Date", "Expect", "Forwarded", "From", "Host", "If-Match", "If-Modified-Since", "If-None-Match",
	"If-Range", "If-Unmodified-Since", "Keep-Alive", "Location", "Max-Forwards", "Mime-Version", "Origin",
	"Pragma", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Range", "Referer",
	"Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "User-Agent", "Via", "Www-Authenticate", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto", "X-Real-Ip",
}

// isProperty reports whether a header is an application property.
func isProperty(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return !slices.Contains(transportHeaders, name) && !strings.HasPrefix(name, "X-Ms-") &&
		!strings.HasPrefix(name, "Sec-") && !strings.HasPrefix(name, "Access-Control-")
}

// propertyValue reads the value of a header or a member of a batch. It is a text in quotes, a time in quotes, a
// number or a truth value. Any other value is text.
func propertyValue(text string) amqp.Raw {
	text = strings.TrimSpace(text)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		var inner string
		if json.Unmarshal([]byte(text), &inner) != nil {
			inner = text[1 : len(text)-1]
		}
		if at, err := http.ParseTime(inner); err == nil {
			return amqp.AppendTimestamp(nil, amqp.Timestamp(at.UnixMilli()))
		}
		return amqp.AppendString(nil, inner)
	}
	switch strings.ToLower(text) {
	case "true", "false":
		return amqp.AppendBool(nil, strings.EqualFold(text, "true"))
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return amqp.AppendLong(nil, n)
	}
	if strings.Trim(text, "+-.0123456789eE") == "" {
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			if raw, err := amqp.AppendValue(nil, f); err == nil {
				return raw
			}
		}
	}
	return amqp.AppendString(nil, text)
}

// propertyText is the value as a header carries it; false if no header can.
func propertyText(v amqp.Raw) (string, bool) {
	switch shown := shownValue(v).(type) {
	case nil:
		return "null", true
	case *time.Time:
		return quoted(shown.UTC().Format(http.TimeFormat)), true
	case string:
		if n, err := v.Value(); err == nil {
			switch n.(type) { // integers that shownValue writes as text
			case int64, uint64:
				return shown, true
			}
		}
		return quoted(shown), true
	case float64:
		return strconv.FormatFloat(shown, 'g', -1, 64), true
	default:
		return fmt.Sprint(shown), true
	}
}

// quoted writes text in quotes, in ASCII: a header holds nothing else safely.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
