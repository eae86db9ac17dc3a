package amqp

import (
	"encoding/binary"
	"slices"
)

// Sections is one encoded message, AMQP 1.0 §3.2, cut into its sections. Each field is a view of
// the complete section, descriptor included, and nil if the message lacks it.
type Sections struct {
	Header                []byte
	DeliveryAnnotations   []byte
	MessageAnnotations    []byte
	Properties            []byte
	ApplicationProperties []byte
	Body                  []byte // all data or amqp-sequence sections, or the amqp-value section
	Footer                []byte
	// Bare is everything from Properties to Footer, byte for byte: what is stored. It is a copy if the
	// footer came ahead of the body.
	Bare []byte
	// BodyCode is CodeData, CodeAMQPSequence or CodeAMQPValue; 0 for a message without a body.
	BodyCode Code
}

// Header is AMQP 1.0 §3.2.1.
type Header struct {
	Durable       bool
	Priority      Opt[uint8]  // absent is 4
	TTL           Opt[uint32] // milliseconds; absent never expires
	FirstAcquirer bool
	DeliveryCount uint32 // deliveries before this one
}

// Properties is AMQP 1.0 §3.2.4. Byte fields are views; nil is null, an empty slice is not. Text
// fields have been checked to be UTF-8 (or ASCII, where the type is symbol).
type Properties struct {
	MessageID          Raw // string, ulong, uuid or binary; see IDText
	UserID             []byte
	To                 []byte
	Subject            []byte
	ReplyTo            []byte
	CorrelationID      Raw    // as MessageID
	ContentType        []byte // symbol
	ContentEncoding    []byte // symbol
	AbsoluteExpiryTime Opt[Timestamp]
	CreationTime       Opt[Timestamp]
	GroupID            []byte
	GroupSequence      Opt[uint32]
	ReplyToGroupID     []byte
}

// ParseMessage cuts an encoded message into its sections. Everything but the body is checked in
// full, so what has been stored can always be read again; of the body only the sizes are looked at,
// because nobody here reads it. A message without a body is let through. Delivery annotations may
// stand at the end, where the Python client writes them, and the footer ahead of the body, where rhea
// does. Errors wrap ErrDecode.
func ParseMessage(payload []byte) (Sections, error) {
	var s Sections
	bud := newBudget(payload)
	bareFrom, bareTo, bodyFrom, early := -1, 0, -1, -1
	for at, last := 0, Code(0); at < len(payload); {
		c, size, err := nextSection(payload[at:], &bud)
		if err != nil {
			return Sections{}, err
		}
		if c == CodeDeliveryAnnotations && s.DeliveryAnnotations == nil && at+size == len(payload) {
			s.DeliveryAnnotations = payload[at:]
			break
		}
		if !mayFollow(c, last) || c == CodeFooter && s.Footer != nil {
			return Sections{}, badf("section 0x%02x behind section 0x%02x", uint8(c), uint8(last))
		}
		if c >= CodeProperties && bareFrom < 0 {
			bareFrom = at
		}
		if isBody(c) && bodyFrom < 0 {
			bodyFrom = at
		}
		s.put(c, payload, at, at+size, bodyFrom)
		if c == CodeFooter && bodyFrom < 0 {
			early = at
			c = CodeApplicationProperties // a body may follow
		}
		at, last = at+size, c
		bareTo = at
	}
	switch {
	case early >= 0 && bodyFrom >= 0:
		head := payload[bareFrom:early]
		s.Bare = slices.Concat(head, s.Body, s.Footer)
	case bareFrom >= 0:
		s.Bare = payload[bareFrom:bareTo:bareTo]
	}
	return s, nil
}

// AnnouncedBytes tells how long the message is that begins with b, up to the end of its first body section. That
// section says its size at its start. It returns 0 if b ends before that, is no message, or its body says its size in
// one byte. The size is what the peer says, so it may be anything.
func AnnouncedBytes(b []byte) int {
	const lengthBytes = 4
	for at := 0; at < len(b); {
		c, n, err := readCode(b[at:])
		if err != nil {
			return 0
		}
		at += n
		if !isBody(c) {
			size, err := valueSize(b[at:])
			if err != nil {
				return 0
			}
			at += size
			continue
		}
		if at++; len(b)-at < lengthBytes {
			return 0
		}
		switch b[at-1] {
		case tBinary32, tString32, tList32, tMap32, tArray32:
			return at + lengthBytes + int(binary.BigEndian.Uint32(b[at:]))
		}
		return 0
	}
	return 0
}

func isBody(c Code) bool { return c >= CodeData && c <= CodeAMQPValue }

// mayFollow reports whether a section may stand behind another one. Sections come in the order of their codes, with
// one kind of body. Of these, data and amqp-sequence repeat.
func mayFollow(c, last Code) bool {
	if isBody(c) && isBody(last) {
		return c == last && c != CodeAMQPValue
	}
	return c > last
}

// nextSection checks the section at the start of b and returns its size.
func nextSection(b []byte, bud *budget) (c Code, size int, err error) {
	c, n, err := readCode(b)
	if err != nil {
		return 0, 0, err
	}
	if n >= len(b) {
		return 0, 0, errShort
	}
	var kind byte
	switch c {
	case CodeHeader, CodeProperties, CodeAMQPSequence:
		kind = tList8
	case CodeDeliveryAnnotations, CodeMessageAnnotations, CodeApplicationProperties, CodeFooter:
		kind = tMap8
	case CodeData:
		kind = tBinary8
	case CodeAMQPValue:
		kind = b[n] &^ wide
	default:
		return 0, 0, badf("descriptor 0x%02x is no message section", uint8(c))
	}
	if b[n]&^wide != kind && !(kind == tList8 && b[n] == tList0) {
		return 0, 0, badf("constructor 0x%02x in section 0x%02x", b[n], uint8(c))
	}
	var m int
	if isBody(c) {
		m, err = valueSize(b[n:])
	} else {
		m, err = bud.checkValue(b[n:], 1)
	}
	return c, n + m, err
}

func (s *Sections) put(c Code, payload []byte, from, to, bodyFrom int) {
	section := payload[from:to:to]
	switch c {
	case CodeHeader:
		s.Header = section
	case CodeDeliveryAnnotations:
		s.DeliveryAnnotations = section
	case CodeMessageAnnotations:
		s.MessageAnnotations = section
	case CodeProperties:
		s.Properties = section
	case CodeApplicationProperties:
		s.ApplicationProperties = section
	case CodeFooter:
		s.Footer = section
	default:
		s.BodyCode = c
		s.Body = payload[bodyFrom:to:to]
	}
}

// sectionValue returns a view of what a section holds, without its descriptor.
func sectionValue(section []byte, want Code) (Raw, error) {
	c, n, err := readCode(section)
	if err != nil {
		return nil, err
	}
	if c != want {
		return nil, badf("section 0x%02x where 0x%02x belongs", uint8(c), uint8(want))
	}
	size, err := valueSize(section[n:])
	if err != nil {
		return nil, err
	}
	if n+size != len(section) {
		return nil, badf("%d bytes behind section 0x%02x", len(section)-n-size, uint8(c))
	}
	return Raw(section[n:]), nil
}

// SectionValue returns a view of what a section holds (a list, map, binary or any value), without
// its descriptor; nil for a missing section.
func SectionValue(section []byte) Raw {
	_, n, err := readCode(section)
	if err != nil {
		return nil
	}
	return Raw(section[n:])
}

// Annotation returns the message annotation with that key; ok is false if there is none.
func (s *Sections) Annotation(key Symbol) (value Raw, ok bool) {
	return SectionValue(s.MessageAnnotations).Get(string(key))
}

// ApplicationProperty returns the application property with that key; ok is false if there is none.
func (s *Sections) ApplicationProperty(key string) (value Raw, ok bool) {
	return SectionValue(s.ApplicationProperties).Get(key)
}

// ParseHeader reads the header. A missing one has the defaults.
func (s *Sections) ParseHeader() (Header, error) {
	if s.Header == nil {
		return Header{}, nil
	}
	f, err := openPerformative(s.Header, CodeHeader)
	if err != nil {
		return Header{}, err
	}
	h := Header{
		Durable:       f.bool().Value,
		Priority:      f.uint8(),
		TTL:           f.uint32(),
		FirstAcquirer: f.bool().Value,
		DeliveryCount: f.uint32().Value,
	}
	return h, f.end()
}

// ParseProperties reads the properties, without allocating. Missing ones are all null.
func (s *Sections) ParseProperties() (Properties, error) {
	if s.Properties == nil {
		return Properties{}, nil
	}
	f, err := openPerformative(s.Properties, CodeProperties)
	if err != nil {
		return Properties{}, err
	}
	p := Properties{
		MessageID:          f.id(),
		UserID:             f.binary(),
		To:                 f.text(),
		Subject:            f.text(),
		ReplyTo:            f.text(),
		CorrelationID:      f.id(),
		ContentType:        f.symbolText(),
		ContentEncoding:    f.symbolText(),
		AbsoluteExpiryTime: f.timestamp(),
		CreationTime:       f.timestamp(),
		GroupID:            f.text(),
		GroupSequence:      f.uint32(),
		ReplyToGroupID:     f.text(),
	}
	return p, f.end()
}

// id reads a message-id or correlation-id.
func (f *fields) id() Raw {
	v := f.raw()
	if v == nil {
		return nil
	}
	switch v[0] {
	case tUlong0, tSmallUlong, tUlong, tUUID, tBinary8, tBinary32, tString8, tString32:
		return v
	}
	f.wrong(v[0])
	return nil
}

// AppendHeader writes a header with all five fields, the delivery count explicit (G17).
func AppendHeader(dst []byte, h Header) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeHeader))
	dst = AppendBool(dst, h.Durable)
	dst = appendOptUbyte(dst, h.Priority)
	dst = appendOptUint(dst, h.TTL)
	dst = AppendBool(dst, h.FirstAcquirer)
	dst = AppendUint(dst, h.DeliveryCount)
	return endCompound(dst, start, tList8, 5)
}

// AppendProperties writes properties with all thirteen fields.
func AppendProperties(dst []byte, p *Properties) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeProperties))
	dst = appendRaw(dst, p.MessageID)
	dst = appendOptBinary(dst, p.UserID)
	dst = appendView(dst, tString8, p.To)
	dst = appendView(dst, tString8, p.Subject)
	dst = appendView(dst, tString8, p.ReplyTo)
	dst = appendRaw(dst, p.CorrelationID)
	dst = appendView(dst, tSymbol8, p.ContentType)
	dst = appendView(dst, tSymbol8, p.ContentEncoding)
	dst = appendOptTimestamp(dst, p.AbsoluteExpiryTime)
	dst = appendOptTimestamp(dst, p.CreationTime)
	dst = appendView(dst, tString8, p.GroupID)
	dst = appendOptUint(dst, p.GroupSequence)
	dst = appendView(dst, tString8, p.ReplyToGroupID)
	return endCompound(dst, start, tList8, 13)
}

// appendView writes text of which only the bytes are at hand, nil as null.
func appendView(dst []byte, code8 byte, v []byte) []byte {
	if v == nil {
		return AppendNull(dst)
	}
	if checkText(code8, v) == nil {
		return append(appendSize(dst, code8, len(v)), v...)
	}
	if code8 == tSymbol8 {
		return AppendSymbol(dst, Symbol(v))
	}
	return AppendString(dst, string(v))
}

func appendOptTimestamp(dst []byte, v Opt[Timestamp]) []byte {
	if !v.Set {
		return AppendNull(dst)
	}
	return AppendTimestamp(dst, v.Value)
}

// AppendValueBody writes an amqp-value section. The error is that of AppendValue.
func AppendValueBody(dst []byte, v any) ([]byte, error) {
	out, err := AppendValue(appendDescriptor(dst, CodeAMQPValue), v)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendData writes a data section.
func AppendData(dst, b []byte) []byte { return AppendBinary(appendDescriptor(dst, CodeData), b) }
