package fsm

import "github.com/busbar-mq/busbar/fsm/rule"

// Version 1 ends before the histories, version 2 before the rules. Version 4 has prefixes behind them, and is written
// only if there are some: an older program reads version 3.
const (
	descriptorVersion1 = 1
	descriptorVersion2 = 2
	descriptorVersion3 = 3
	descriptorVersion  = 4
)

// The shortest encoded authorization rule, and rule of a subscription.
const (
	minAuthRuleBytes = 6
	minRuleBytes     = 3
)

// AppendDescriptor appends an entity descriptor.
func AppendDescriptor(dst []byte, d *Descriptor) []byte {
	version := byte(descriptorVersion3)
	if len(d.Prefixes) > 0 {
		version = descriptorVersion
	}
	dst = append(dst, version)
	dst = appendUint(dst, uint64(d.ID))
	dst = appendUint(dst, d.Version)
	dst = append(dst, byte(d.Kind), byte(d.Status))
	dst = appendString(dst, d.Name)
	dst = appendUint(dst, uint64(d.Parent))
	dst = appendUint(dst, uint64(len(d.Partitions)))
	for _, p := range d.Partitions {
		dst = appendUint(dst, uint64(p))
	}
	for _, f := range d.flags() {
		dst = appendBool(dst, *f)
	}
	for _, t := range d.durations() {
		dst = appendTime(dst, *t)
	}
	dst = appendTime(appendTime(dst, d.CreatedAt), d.UpdatedAt)
	for _, n := range [...]uint32{d.MaxDelivery, d.MaxMessageBytes, d.MaxSizeMegabytes,
		d.MaxMessageKilobytes} {
		dst = appendUint(dst, uint64(n))
	}
	dst = appendUint(dst, d.MaxSizeBytes)
	dst = appendString(dst, d.ForwardTo)
	dst = appendString(dst, d.ForwardDeadLettersTo)
	dst = appendString(dst, d.UserMetadata)
	dst = appendUint(dst, uint64(len(d.AuthRules)))
	for i := range d.AuthRules {
		dst = appendAuthRule(dst, &d.AuthRules[i])
	}
	for _, on := range [...]bool{d.ProcessedHistory, d.ProcessedHistoryBody, d.AcceptedHistory} {
		dst = appendBool(dst, on)
	}
	dst = appendUint(dst, uint64(d.HistoryCount))
	dst = appendTime(dst, d.HistoryAge)
	dst = appendUint(dst, d.HistoryMaxBytes)
	b := &d.RetryBackoff
	dst = appendTime(appendTime(dst, b.Min), b.Max)
	dst = appendUint(appendUint(dst, uint64(b.Multiplier)), uint64(b.Jitter))
	dst = appendUint(dst, uint64(len(d.Rules)))
	for i := range d.Rules {
		dst = appendTime(appendString(dst, d.Rules[i].Name), d.Rules[i].CreatedAt)
		dst = appendBytes(dst, d.Rules[i].Source.Append(nil))
	}
	if version == descriptorVersion {
		dst = appendUint(dst, uint64(len(d.Prefixes)))
		for _, p := range d.Prefixes {
			dst = appendUint(dst, uint64(p))
		}
	}
	return dst
}

// DecodeDescriptor decodes a descriptor.
func DecodeDescriptor(b []byte) (Descriptor, error) {
	r := reader{b: b}
	d := r.descriptor()
	return d, r.end()
}

// flags lists the boolean fields in their encoded order. New ones go last, with a new version.
func (d *Descriptor) flags() [11]*bool {
	return [...]*bool{&d.Partitioned, &d.RequiresSession, &d.DeadLetterOnExpiration, &d.NoDeadLetter,
		&d.DetectDuplicates, &d.DeadLetterOnFilterError, &d.EnableBatched, &d.EnableExpress,
		&d.SupportOrdering, &d.FilterBeforePublish, &d.PartitionSubscriptions}
}

// durations lists the fields of that type in their encoded order; CreatedAt and UpdatedAt follow them.
func (d *Descriptor) durations() [4]*Millis {
	return [...]*Millis{&d.LockDuration, &d.DefaultTTL, &d.DuplicateWindow, &d.AutoDeleteOnIdle}
}

func (r *reader) descriptor() Descriptor {
	var d Descriptor
	version := r.versions(descriptorVersion1, descriptorVersion)
	d.ID = EntityID(r.uvarint())
	d.Version = r.uvarint()
	if d.Kind = EntityKind(r.u8()); d.Kind < Queue || d.Kind > Subscription {
		r.fail("unknown entity kind")
	}
	if d.Status = Status(r.u8()); d.Status > ReceiveDisabled {
		r.fail("unknown entity status")
	}
	d.Name = r.string()
	d.Parent = EntityID(r.uvarint())
	if n := r.count(1); n > 0 {
		d.Partitions = make([]PartitionID, n)
	}
	for i := range d.Partitions {
		d.Partitions[i] = PartitionID(r.u16())
	}
	for _, f := range d.flags() {
		*f = r.boolean()
	}
	for _, t := range d.durations() {
		*t = r.millis()
	}
	d.CreatedAt, d.UpdatedAt = r.wall(), r.wall()
	for _, n := range [...]*uint32{&d.MaxDelivery, &d.MaxMessageBytes, &d.MaxSizeMegabytes,
		&d.MaxMessageKilobytes} {
		*n = r.u32()
	}
	d.MaxSizeBytes = r.uvarint()
	d.ForwardTo = r.string()
	d.ForwardDeadLettersTo = r.string()
	d.UserMetadata = r.string()
	if n := r.count(minAuthRuleBytes); n > 0 {
		d.AuthRules = make([]AuthRule, n)
	}
	for i := range d.AuthRules {
		d.AuthRules[i] = r.authRule()
	}
	if version == descriptorVersion1 {
		return d
	}
	d.ProcessedHistory, d.ProcessedHistoryBody, d.AcceptedHistory = r.boolean(), r.boolean(), r.boolean()
	d.HistoryCount, d.HistoryAge, d.HistoryMaxBytes = r.u32(), r.millis(), r.uvarint()
	d.RetryBackoff = RetryBackoff{
		Min: r.millis(), Max: r.millis(), Multiplier: r.u32(), Jitter: r.u32(),
	}
	if version == descriptorVersion2 {
		return d
	}
	if n := r.count(minRuleBytes); n > 0 {
		d.Rules = make([]Rule, n)
	}
	for i := range d.Rules {
		d.Rules[i] = r.rule()
	}
	if version == descriptorVersion {
		d.Prefixes = listOf(r, 1, func() PartitionID { return PartitionID(r.u16()) })
	}
	return d
}

func (r *reader) rule() Rule {
	u := Rule{Name: r.string(), CreatedAt: r.wall()}
	source, err := rule.DecodeSource(r.bytes())
	if err != nil {
		r.fail("rule: " + err.Error())
	}
	u.Source = source
	return u
}

func appendAuthRule(dst []byte, a *AuthRule) []byte {
	var rights byte
	for i, on := range [...]bool{a.Send, a.Listen, a.Manage} {
		if on {
			rights |= 1 << i
		}
	}
	dst = appendString(append(dst, rights), a.Name)
	dst = appendString(dst, a.PrimaryKey)
	dst = appendString(dst, a.SecondaryKey)
	dst = appendTime(dst, a.CreatedAt)
	return appendTime(dst, a.ModifiedAt)
}

func (r *reader) authRule() AuthRule {
	rights := r.u8()
	if rights > 7 {
		r.fail("unknown right")
	}
	return AuthRule{Send: rights&1 != 0, Listen: rights&2 != 0, Manage: rights&4 != 0,
		Name: r.string(), PrimaryKey: r.string(), SecondaryKey: r.string(),
		CreatedAt: r.wall(), ModifiedAt: r.wall()}
}
