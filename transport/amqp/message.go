package amqp

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
	// Bare is everything from Properties to Footer as it arrived: what is stored, byte for byte.
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
