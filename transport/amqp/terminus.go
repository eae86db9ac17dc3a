package amqp

// Source is AMQP 1.0 §3.5.3. A decoded one keeps the client's bytes in Encoded; as long as Encoded
// is set, it is what goes out, and the other fields are for reading only.
type Source struct {
	// Encoded is the whole described value as it came, a view. See Echo.
	Encoded               Raw
	Address               Opt[string]
	Durable               uint32
	ExpiryPolicy          Symbol // "" is null, which means session-end
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw // map
	DistributionMode      Symbol
	Filter                Raw // map, see SessionFilter
	DefaultOutcome        Raw
	Outcomes              []Symbol
	Capabilities          []Symbol
}

// Target is AMQP 1.0 §3.5.4. Encoded is as in Source.
type Target struct {
	Encoded               Raw
	Address               Opt[string]
	Durable               uint32
	ExpiryPolicy          Symbol
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw // map
	Capabilities          []Symbol
}

// Coordinator is AMQP 1.0 §4.5.1, the target of a link that declares and discharges transactions.
// Encoded is as in Source.
type Coordinator struct {
	Encoded      Raw
	Capabilities []Symbol
}

// Keys of Source.Filter.
const (
	FilterSession             Symbol = "com.microsoft:session-filter"
	FilterNonExclusiveSession Symbol = "com.microsoft:non-exclusive-session-filter:list"
)

// SessionFilter is what a receiver asks for with FilterSession.
type SessionFilter struct {
	// SessionID is the session that is wanted; absent asks for the next one that is free. The empty
	// string is an id like any other (RUL-17).
	SessionID Opt[string]
	// Described tells that the client wrote the filter as a described value, and so must be
	// answered with one (G16).
	Described bool
}
