package rule

// Correlation is a filter by equality: every field that is set must equal the message's, exactly
// and with case (S-218). An unset field (nil) is not looked at.
type Correlation struct {
	CorrelationID    *string    `json:"correlationID,omitempty"`
	MessageID        *string    `json:"messageID,omitempty"`
	To               *string    `json:"to,omitempty"`
	ReplyTo          *string    `json:"replyTo,omitempty"`
	Label            *string    `json:"label,omitempty"`
	SessionID        *string    `json:"sessionID,omitempty"`
	ReplyToSessionID *string    `json:"replyToSessionID,omitempty"`
	ContentType      *string    `json:"contentType,omitempty"`
	Properties       []Property `json:"properties,omitempty"` // application properties
}

// fields returns the system fields in the order of their binary form.
func (c *Correlation) fields() [8]field {
	return [8]field{
		{CorrelationID, &c.CorrelationID}, {MessageID, &c.MessageID}, {To, &c.To},
		{ReplyTo, &c.ReplyTo}, {Label, &c.Label}, {SessionID, &c.SessionID},
		{ReplyToSessionID, &c.ReplyToSessionID}, {ContentType, &c.ContentType},
	}
}

type field struct {
	property SystemProperty
	text     **string
}

// correlation is the compiled form.
type correlation struct {
	system [systemProperties]*string
	fields []SystemProperty
	user   []Property
}

// NewCorrelation compiles a correlation filter, which must have something to compare. The error is
// a *SourceError.
func NewCorrelation(c *Correlation) (*Filter, error) {
	compiled := &correlation{}
	for _, f := range c.fields() {
		if *f.text != nil {
			text := **f.text // a copy: the caller keeps c
			compiled.system[f.property] = &text
			compiled.fields = append(compiled.fields, f.property)
		}
	}
	if err := checkProperties("property of a correlation filter", c.Properties); err != nil {
		return nil, err
	}
	compiled.user = append(compiled.user, c.Properties...)
	if len(compiled.fields)+len(compiled.user) == 0 {
		return nil, sourceErrorf("a correlation filter must compare at least one property")
	}
	return &Filter{kind: CorrelationFilter, correlation: compiled}, nil
}

// steps is what a match costs at most, without looking through the properties.
func (c *correlation) steps() int { return 1 + len(c.fields) + len(c.user) }

func (c *correlation) match(m Message) bool {
	for _, p := range c.fields {
		if m.System(p) != OfString(*c.system[p]) {
			return false
		}
	}
	for i := range c.user {
		v, ok := m.User(c.user[i].Name)
		if !ok || !Equal(c.user[i].Value, v) {
			return false
		}
	}
	return true
}
