package rule

import "strings"

// SystemProperty is a property of the broker or of the message's own sections, read as sys.Name.
type SystemProperty uint8

// The system properties of a message. Message.System answers with a Value of the kind that
// [SystemProperty.Kind] names, or null where the message has none; a message id that is no string
// is given as text.
const (
	NoProperty           SystemProperty = iota
	Label                               // properties.subject
	MessageID                           // properties.message-id, as text
	CorrelationID                       // properties.correlation-id, as text
	To                                  // properties.to
	ReplyTo                             // properties.reply-to
	ReplyToSessionID                    // properties.reply-to-group-id
	SessionID                           // properties.group-id
	ContentType                         // properties.content-type
	TimeToLive                          // header.ttl
	PartitionKey                        // annotation x-opt-partition-key
	ViaPartitionKey                     // annotation x-opt-via-partition-key
	ScheduledEnqueueTime                // annotation x-opt-scheduled-enqueue-time
	EnqueuedTime                        // annotation x-opt-enqueued-time
	SequenceNumber
	EnqueuedSequenceNumber
	DeliveryCount
	LockToken
	LockedUntil
	ExpiresAt
	State
	Size // bytes
	DeadLetterSource
	ForcePersistence
	IsBodyConsumed
	systemProperties // their number
)

// maxKeyChars is the limit of the ids that the broker compares (management quotas).
const maxKeyChars = 128

// systemProperty is what the language knows of one.
type systemProperty struct {
	name     string
	kind     Kind
	settable bool
	maxChars int // of a settable string; 0 for no limit but MaxTextBytes
}

var systemTable = [systemProperties]systemProperty{
	NoProperty:             {"", Null, false, 0},
	Label:                  {"Label", String, true, 0},
	MessageID:              {"MessageId", String, true, maxKeyChars},
	CorrelationID:          {"CorrelationId", String, true, 0},
	To:                     {"To", String, true, 0},
	ReplyTo:                {"ReplyTo", String, true, 0},
	ReplyToSessionID:       {"ReplyToSessionId", String, true, maxKeyChars},
	SessionID:              {"SessionId", String, true, maxKeyChars},
	ContentType:            {"ContentType", String, true, 0},
	TimeToLive:             {"TimeToLive", Duration, true, 0},
	PartitionKey:           {"PartitionKey", String, true, maxKeyChars},
	ViaPartitionKey:        {"ViaPartitionKey", String, true, maxKeyChars},
	ScheduledEnqueueTime:   {"ScheduledEnqueueTimeUtc", DateTime, true, 0},
	EnqueuedTime:           {"EnqueuedTimeUtc", DateTime, false, 0},
	SequenceNumber:         {"SequenceNumber", Int, false, 0},
	EnqueuedSequenceNumber: {"EnqueuedSequenceNumber", Int, false, 0},
	DeliveryCount:          {"DeliveryCount", Int, false, 0},
	LockToken:              {"LockToken", Guid, false, 0},
	LockedUntil:            {"LockedUntilUtc", DateTime, false, 0},
	ExpiresAt:              {"ExpiresAtUtc", DateTime, false, 0},
	State:                  {"State", String, false, 0},
	Size:                   {"Size", Int, false, 0},
	DeadLetterSource:       {"DeadLetterSource", String, false, 0},
	ForcePersistence:       {"ForcePersistence", Bool, false, 0},
	IsBodyConsumed:         {"IsBodyConsumed", Bool, false, 0},
}

// aliases are the names that newer clients have for the same properties.
var aliases = [...]struct {
	name     string
	property SystemProperty
}{
	{"Subject", Label},
	{"TransactionPartitionKey", ViaPartitionKey},
	{"ScheduledEnqueueTime", ScheduledEnqueueTime},
	{"EnqueuedTime", EnqueuedTime},
	{"LockedUntil", LockedUntil},
	{"ExpiresAt", ExpiresAt},
}

// FindSystemProperty returns the property that sys.name means, NoProperty if there is none.
func FindSystemProperty(name string) SystemProperty {
	for p := NoProperty + 1; p < systemProperties; p++ {
		if SameName(systemTable[p].name, name) {
			return p
		}
	}
	for _, a := range aliases {
		if SameName(a.name, name) {
			return a.property
		}
	}
	return NoProperty
}

// String returns the name of p without its scope.
func (p SystemProperty) String() string {
	if p >= systemProperties {
		return ""
	}
	return systemTable[p].name
}

// Kind returns the kind of p's values.
func (p SystemProperty) Kind() Kind {
	if p >= systemProperties {
		return Null
	}
	return systemTable[p].kind
}

// SameName reports whether two names of properties are the same: case does not count (S-219).
func SameName(a, b string) bool { return strings.EqualFold(a, b) }

// Message is what a rule sees of a message, never its body (S-218), and the chance of the log entry
// that is being applied. Evaluation keeps no reference to it, but the strings of the changes that
// an action returns may be views into its memory.
type Message interface {
	// User returns the application property whose name is the same as name (SameName); ok is false
	// if there is none. Of several, the first counts.
	User(name string) (v Value, ok bool)
	// Properties returns how many application properties the message has: User may look through all of them.
	Properties() int
	// System returns a system property, null if the message does not have it.
	System(p SystemProperty) Value
	// NewID returns 16 bytes drawn from the entry's seed, others at every call (S-224).
	NewID() [16]byte
}
