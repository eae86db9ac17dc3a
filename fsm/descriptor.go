package fsm

import (
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// EntityKind tells queues, topics and subscriptions apart.
type EntityKind uint8

// The kinds of entity.
const (
	Queue EntityKind = 1 + iota
	Topic
	Subscription
)

// Status is what an entity allows (S-252, S-253).
type Status uint8

// The settable statuses.
const (
	Active Status = iota
	Disabled
	SendDisabled
	ReceiveDisabled
)

// Unlimited is the value of an absent limit: the largest duration the management API can express,
// P10675199DT2H48M5.4775807S, rounded down to milliseconds.
const Unlimited Millis = 922337203685477

// Descriptor is one version of an entity's description, as the catalog holds it and every share of
// the entity knows it. All replicas see the same bytes, so it may decide outcomes.
type Descriptor struct {
	ID      EntityID
	Version uint64 // the catalog's change number that wrote it; grows with every update
	Kind    EntityKind
	Name    string // as created; names compare case-insensitively (S-260). Subscriptions: topic/Subscriptions/name
	Parent  EntityID

	// Partitions are the entity's shares, frozen at creation: one partition each (A1). Partitioned
	// says that numbers and tokens carry the partition id; otherwise there is exactly one share.
	Partitions  []PartitionID
	Partitioned bool
	// Prefixes are parallel to Partitions in a partitioned entity that was restored: what the numbers and tokens of each
	// share carry. Clients keep numbers, so a share in another partition goes on with the prefix that it had (S-365).
	// Without them each share carries the id of its partition.
	Prefixes []PartitionID `json:",omitempty"`

	// Origins are parallel to Partitions in an entity of which a share has moved: the first partition of each share.
	// Destinations know by it what comes from the share. They are the catalog's own.
	Origins []PartitionID `json:",omitempty"`

	Status Status
	// AsSent is the catalog's own: the shares' descriptions leave it out.
	AsSent AsSent `json:",omitzero"`

	// Suspended says that an operator forbids something that its users cannot allow (S-256): Status is what
	// that leaves of UserStatus. Both are the catalog's own and no part of the encoded form: a share works
	// by Status and does not ask whose it is.
	Suspended  bool   `json:",omitempty"`
	UserStatus Status `json:",omitempty"`

	RequiresSession bool
	LockDuration    Millis // 5 s to 5 min (S-157)
	MaxDelivery     uint32 // MaxDeliveryCount, at least 1 (S-14)
	MaxMessageBytes uint32 // announced on links; the limit of a message, a batch and a session state (RUL-9)
	MaxSizeBytes    uint64 // quota over all stored bytes (S-225); divided over the shares

	DefaultTTL             Millis // Unlimited if none
	DeadLetterOnExpiration bool
	NoDeadLetter           bool // deadLetterEnabled = false (S-169)
	DetectDuplicates       bool
	DuplicateWindow        Millis
	AutoDeleteOnIdle       Millis // Unlimited if none
	ForwardTo              string // as given by the client
	ForwardDeadLettersTo   string
	UserMetadata           string

	DeadLetterOnFilterError bool   // subscriptions
	EnableBatched           bool   // stored and returned; changes nothing
	EnableExpress           bool   // stored and returned; changes nothing
	SupportOrdering         bool   // stored and returned; changes nothing
	FilterBeforePublish     bool   // topics; stored and returned
	PartitionSubscriptions  bool   // topics; stored and returned
	MaxSizeMegabytes        uint32 // as given by the client
	MaxMessageKilobytes     uint32 // as given by the client, 0 if absent

	// Options without a property of Azure; zero changes nothing.
	ProcessedHistory     bool   // S-274
	ProcessedHistoryBody bool   // the history keeps bodies, too
	AcceptedHistory      bool   // S-275
	HistoryCount         uint32 // the newest records that stay (S-276); 0 stands for 100
	HistoryAge           Millis // how long every record stays (S-276); 0 stands for a day
	HistoryMaxBytes      uint64 // cap of each history in each share; 0 stands for 16 MiB
	RetryBackoff         RetryBackoff

	AuthRules []AuthRule

	// Rules are those of a subscription, in the order of their creation; one without rules selects
	// nothing (S-217).
	Rules []Rule `json:",omitempty"`

	CreatedAt Wall
	UpdatedAt Wall
}

// DefaultRuleName is the name of the rule that a subscription has if none is given (S-215).
const DefaultRuleName = "$Default"

// Rule is one rule of a subscription. The catalog has checked that it compiles.
type Rule struct {
	Name      string
	Source    rule.Source
	CreatedAt Wall
	// Preprocessing is what a client said of RequiresPreprocessing in the filter and in the action, "" if
	// nothing. It is shown again and means nothing; only the catalog knows it.
	Preprocessing [2]string `json:",omitzero"`
}

// Rule returns the rule with that name, compared case-insensitively, or nil.
func (d *Descriptor) Rule(name string) *Rule {
	for i := range d.Rules {
		if strings.EqualFold(d.Rules[i].Name, name) {
			return &d.Rules[i]
		}
	}
	return nil
}

// RulesByName returns the rules in the order of their names, without case: the order in which clients
// page through them.
func (d *Descriptor) RulesByName() []Rule {
	all := slices.Clone(d.Rules)
	slices.SortFunc(all, func(a, b Rule) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	return all
}

// RetryBackoff is how long a message rests before it is delivered again after an abandon or the end
// of its lock: Min after the first delivery, each time longer by Multiplier, at most Max. Zero means
// at once.
type RetryBackoff struct {
	Min        Millis
	Max        Millis
	Multiplier uint32 // percent: 200 doubles; less than 100 counts as 100
	Jitter     uint32 // percent of the pause that chance may take off it, at most 100
}

// AuthRule is a shared access policy of an entity. Keys are secrets: never log a Descriptor's rules.
type AuthRule struct {
	Name         string
	PrimaryKey   string
	SecondaryKey string
	Send         bool
	Listen       bool
	Manage       bool
	Order        RightOrder `json:",omitempty"` // the catalog's own: shares do not need it
	CreatedAt    Wall
	ModifiedAt   Wall
}

// AsSent is what a description shows again as a client sent it and what decides nothing.
type AsSent struct {
	AnonymousAccess bool `json:",omitempty"` // nobody comes in without a token all the same
	// Lock, TTL, Window and Idle are parts of the four durations in units of 100 ns, below a millisecond. Each is
	// added to the whole milliseconds, or for Unlimited taken from the largest duration.
	Lock   uint16 `json:",omitempty"`
	TTL    uint16 `json:",omitempty"`
	Window uint16 `json:",omitempty"`
	Idle   uint16 `json:",omitempty"`
}

// RightOrder numbers the orders in which the owner of a rule may have named its rights. Clients compare
// what they sent with what they read, so a rule comes back as it was sent.
type RightOrder uint8

// rightOrders are the orders of the rights; the first is that of rules from before orders were kept.
var rightOrders = [...][3]string{
	{"Manage", "Listen", "Send"}, {"Manage", "Send", "Listen"}, {"Listen", "Manage", "Send"},
	{"Listen", "Send", "Manage"}, {"Send", "Manage", "Listen"}, {"Send", "Listen", "Manage"},
}

// OrderOfRights returns the order in which names has the rights "Manage", "Listen" and "Send"; each at
// most once, others are not looked at.
func OrderOfRights(names []string) RightOrder {
	for o, order := range rightOrders {
		last, sorted := -1, true
		for _, name := range names {
			at := slices.Index(order[:], name)
			sorted = sorted && at > last
			last = at
		}
		if sorted {
			return RightOrder(o)
		}
	}
	return 0
}

// Rights returns the names of the rights that the rule gives, in the order of its owner.
func (a *AuthRule) Rights() []string {
	var names []string
	for _, name := range rightOrders[int(a.Order)%len(rightOrders)] {
		if name == "Manage" && a.Manage || name == "Listen" && a.Listen || name == "Send" && a.Send {
			names = append(names, name)
		}
	}
	return names
}

// With returns the status that forbids what either of the two does.
func (st Status) With(other Status) Status {
	switch sends, receives := st.sends() && other.sends(), st.receives() && other.receives(); {
	case sends && receives:
		return Active
	case receives:
		return SendDisabled
	case sends:
		return ReceiveDisabled
	}
	return Disabled
}

// Restore gives a description back the status that its user set.
func (d *Descriptor) Restore() {
	if d.Suspended {
		d.Status = d.UserStatus
	}
	d.Suspended, d.UserStatus = false, Active
}

// Prefix returns what numbers and tokens of share i carry: 0 if the entity is not partitioned (RUL-21), else the id of
// a partition. It is that of the share, unless the entity was restored.
func (d *Descriptor) Prefix(share int) PartitionID {
	switch {
	case !d.Partitioned:
		return 0
	case len(d.Prefixes) > 0:
		return d.Prefixes[share]
	}
	return d.Partitions[share]
}

// ShareOf returns the index of the share whose numbers and tokens carry prefix, or -1.
func (d *Descriptor) ShareOf(prefix PartitionID) int {
	if !d.Partitioned {
		return 0
	}
	if len(d.Prefixes) > 0 {
		return slices.Index(d.Prefixes, prefix)
	}
	return slices.Index(d.Partitions, prefix)
}

// sends and receives report what a status allows (S-252, S-253).
func (st Status) sends() bool    { return st == Active || st == ReceiveDisabled }
func (st Status) receives() bool { return st == Active || st == SendDisabled }
