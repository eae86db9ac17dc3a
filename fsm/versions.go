package fsm

import "strings"

// The cluster versions. A command, a field of a change, a call between nodes or a form of bytes that comes later gets a row
// below. Most often it gets a version of its own. HACKING.md tells how.
const (
	// VersionFirst is what every program knows.
	VersionFirst Version = 0
	// VersionPlacement has the changes of decision 0065.
	VersionPlacement Version = 1
	// VersionUpgrades has registrations that are judged by the version of their program, and data directories that tell
	// the cluster version (docs/decisions/0075-cluster-version.md).
	VersionUpgrades Version = 101
	// VersionBackups has holds of forwards and restores, images of partitions for backups, and prefixes of shares
	// (docs/decisions/0062-backup-and-restore.md).
	VersionBackups Version = 102
	// VersionRehoming has shares that move to other partitions (docs/decisions/0074-partitions-can-be-added.md).
	VersionRehoming Version = 103
	// VersionChosen has messages that are moved, sent again or deleted by their numbers.
	VersionChosen Version = 104
	// VersionSeen has updates of entities that name the version that they were made from.
	VersionSeen Version = 105
)

const (
	// NewestVersion is the highest version that this program knows.
	NewestVersion = VersionSeen
	// OldestVersion is the lowest version that this program works with: that of the first step of the minor release before
	// its own.
	OldestVersion = VersionFirst
)

// known is a name, and the version since when every node knows it.
type known struct {
	name  string
	since Version
}

// commandsKnown has a row for each kind of command.
var commandsKnown = [...]known{
	kindEnqueue:         {"Enqueue", VersionFirst},
	kindLock:            {"Lock", VersionFirst},
	kindSettle:          {"Settle", VersionFirst},
	kindRenew:           {"Renew", VersionFirst},
	kindAcceptSession:   {"AcceptSession", VersionFirst},
	kindRenewSession:    {"RenewSession", VersionFirst},
	kindReleaseSession:  {"ReleaseSession", VersionFirst},
	kindSetSessionState: {"SetSessionState", VersionFirst},
	kindReceive:         {"Receive", VersionFirst},
	kindCancel:          {"Cancel", VersionFirst},
	kindDropLocks:       {"DropLocks", VersionFirst},
	kindDropPumps:       {"DropPumps", VersionFirst},
	kindNodeLost:        {"NodeLost", VersionFirst},
	kindPutEntity:       {"PutEntity", VersionFirst},
	kindDropEntity:      {"DropEntity", VersionFirst},
	kindBecomeLeader:    {"BecomeLeader", VersionFirst},
	kindTick:            {"Tick", VersionFirst},
	kindBarrier:         {"Barrier", VersionFirst},
	kindChange:          {"Change", VersionFirst},
	kindEnqueueKeyed:    {"Enqueue with partition keys", VersionFirst},
	kindDeleteMessages:  {"DeleteMessages", VersionFirst},
	kindTouch:           {"Touch", VersionFirst},
	kindRedrive:         {"Redrive", VersionFirst},
	kindEnqueueMoved:    {"Enqueue of moved messages", VersionFirst},
	kindCommit:          {"Commit", VersionFirst},
	kindTransfer:        {"Transfer", VersionFirst},
	kindForward:         {"Forward", VersionFirst},
	kindRedriveTo:       {"Redrive to another entity", VersionFirst},
	kindDiscard:         {"Redrive that deletes", VersionFirst},
	kindRevoke:          {"Revoke", VersionFirst},
	kindBodyPart:        {"BodyPart", VersionFirst},
	kindLarge:           {"Enqueue with bodies in parts", VersionFirst},
	kindLargeState:      {"SetSessionState in parts", VersionFirst},
	kindAcceptShared:    {"AcceptSession without exclusion", VersionFirst},
	kindLeaveSession:    {"ReleaseSession after a take-over", VersionFirst},
	kindWatchSession:    {"WatchSession", VersionFirst},
	kindReserve:         {"Reserve", VersionFirst},
	kindReserved:        {"Enqueue with reserved numbers", VersionFirst},
	kindRevokeBy:        {"Revoke that names its operator", VersionFirst},
	kindHoldForwards:    {"HoldForwards", VersionBackups},
	kindRestore:         {"Restore", VersionBackups},
	kindRehome:          {"Rehome", VersionRehoming},
	kindChosen:          {"Redrive of numbers", VersionChosen},
}

// changesKnown has the fields of a change of the catalog, as paths in its JSON. "descriptor" stands for the entity of
// "create" and "update", and "rule" for that of "putRule" and of an entity. A field that comes later is absent when it is
// zero, else each change would have it.
var changesKnown = []known{
	{"create update", VersionFirst},
	{"descriptor.ID descriptor.Version descriptor.Kind descriptor.Name descriptor.Parent descriptor.Partitions " +
		"descriptor.Partitioned descriptor.Status descriptor.Suspended descriptor.UserStatus descriptor.RequiresSession " +
		"descriptor.LockDuration descriptor.MaxDelivery descriptor.MaxMessageBytes descriptor.MaxSizeBytes " +
		"descriptor.DefaultTTL descriptor.DeadLetterOnExpiration descriptor.NoDeadLetter descriptor.DetectDuplicates " +
		"descriptor.DuplicateWindow descriptor.AutoDeleteOnIdle descriptor.ForwardTo descriptor.ForwardDeadLettersTo " +
		"descriptor.UserMetadata descriptor.DeadLetterOnFilterError descriptor.EnableBatched descriptor.EnableExpress " +
		"descriptor.SupportOrdering descriptor.FilterBeforePublish descriptor.PartitionSubscriptions " +
		"descriptor.MaxSizeMegabytes descriptor.MaxMessageKilobytes descriptor.ProcessedHistory " +
		"descriptor.ProcessedHistoryBody descriptor.AcceptedHistory descriptor.HistoryCount descriptor.HistoryAge " +
		"descriptor.HistoryMaxBytes descriptor.CreatedAt descriptor.UpdatedAt", VersionFirst},
	{"descriptor.AsSent descriptor.AsSent.AnonymousAccess descriptor.AsSent.Lock descriptor.AsSent.TTL " +
		"descriptor.AsSent.Window descriptor.AsSent.Idle", VersionFirst},
	{"descriptor.RetryBackoff descriptor.RetryBackoff.Min descriptor.RetryBackoff.Max " +
		"descriptor.RetryBackoff.Multiplier descriptor.RetryBackoff.Jitter", VersionFirst},
	{"descriptor.AuthRules descriptor.AuthRules.Name descriptor.AuthRules.PrimaryKey descriptor.AuthRules.SecondaryKey " +
		"descriptor.AuthRules.Send descriptor.AuthRules.Listen descriptor.AuthRules.Manage descriptor.AuthRules.Order " +
		"descriptor.AuthRules.CreatedAt descriptor.AuthRules.ModifiedAt", VersionFirst},
	{"descriptor.Rules rule.Name rule.CreatedAt rule.Preprocessing rule.Source rule.Source.kind rule.Source.expression " +
		"rule.Source.action", VersionFirst},
	{"rule.Source.parameters rule.Source.parameters.name rule.Source.parameters.value rule.Source.parameters.type " +
		"rule.Source.actionParameters rule.Source.actionParameters.name rule.Source.actionParameters.value " +
		"rule.Source.actionParameters.type", VersionFirst},
	{"rule.Source.correlation rule.Source.correlation.correlationID rule.Source.correlation.messageID " +
		"rule.Source.correlation.to rule.Source.correlation.replyTo rule.Source.correlation.label " +
		"rule.Source.correlation.sessionID rule.Source.correlation.replyToSessionID rule.Source.correlation.contentType " +
		"rule.Source.correlation.properties rule.Source.correlation.properties.name " +
		"rule.Source.correlation.properties.value rule.Source.correlation.properties.type", VersionFirst},
	{"limits limits.entities limits.subscriptions limits.sqlFilters limits.correlationFilters limits.ruleChars", VersionFirst},
	{"delete delete.id deleteIfIdle deleteIfIdle.id deleteIfIdle.version", VersionFirst},
	{"suspend suspend.id suspend.status", VersionFirst},
	{"putRule putRule.entity putRule.rule putRule.new putRule.replace dropRule dropRule.entity dropRule.name", VersionFirst},
	{"place place.groups place.groups.id place.groups.members place.groups.founders place.groups.epoch", VersionFirst},
	{"replace replace.id replace.from replace.members", VersionFirst},
	{"node node.id node.name node.incarnation before lost lost.incarnation", VersionFirst},
	{"node.wish node.since", VersionFirst}, // never sent: fields of a node that the catalog alone sets
	{"raise", VersionFirst},                // judged by the version that it names
	{"wish wish.id wish.wish forget forget.id forget.incarnation replace.epoch node.zone", VersionPlacement},
	{"restore descriptor.Prefixes", VersionBackups},
	{"rehome rehome.id rehome.moves rehome.moves.share rehome.moves.to rehomed rehomed.id rehomed.epoch rehomed.step " +
		"rehomed.why descriptor.Origins", VersionRehoming},
	{"seen", VersionSeen},
}

// changesIgnored are fields that a node of an earlier version passes over, and that change nothing below the version.
// So a node may send them before it knows the version of the cluster.
var changesIgnored = []known{
	{"program", VersionUpgrades},
	{"heard heard.id heard.incarnation", VersionUpgrades},
}

// Call is a call between nodes: its kind in a frame of the mesh, and the version since when every node answers it.
type Call struct {
	Kind  uint8
	Name  string
	Since Version
}

// callsKnown are the calls of package partition, and that of cluster.
var callsKnown = []Call{
	{1, "raft", VersionFirst},
	{2, "snapshot", VersionFirst},
	{3, "propose", VersionFirst},
	{4, "query", VersionFirst},
	{5, "await", VersionFirst},
	{6, "unpark", VersionFirst},
	{7, "status", VersionFirst},
	{8, "read index", VersionFirst},
	{9, "rebuild", VersionFirst},
	{10, "witness", VersionFirst},
	{11, "reopen", VersionFirst},
	{12, "transfer", VersionFirst},
	{13, "quarantine", VersionFirst},
	{14, "checkpoint", VersionFirst},
	{15, "audit", VersionFirst},
	{16, "step down", VersionFirst},
	{17, "clock", VersionFirst},
	{18, "catalog", VersionFirst},
	{19, "released", VersionFirst},
	{20, "admit version", VersionUpgrades},
	{21, "capture", VersionBackups},
	{22, "read image", VersionBackups},
	{23, "drop images", VersionBackups},
	{24, "image of a share", VersionRehoming},
	{25, "beat", VersionFirst}, // called on every node: an older program says that it does not serve the call
	{64, "bootstrap", VersionFirst},
	{65, "connections", VersionRehoming}, // asked of every node: an older program says that it does not serve the call
}

// Calls returns the calls between nodes by their kinds.
func Calls() []Call { return append([]Call(nil), callsKnown...) }

// Format is one form of bytes on disks or between nodes, and the version below which nobody writes it.
type Format struct {
	Name   string
	Number int
	Since  Version
}

// formatsKnown are the forms by name and number. Those of hard.json are compared when a data directory is opened, the
// forms between nodes by their first bytes. A form whose number follows from what it holds, such as that of an image, is
// written in the lowest one that can hold it.
var formatsKnown = []Format{
	{"directory", 1, VersionFirst},
	{"log-record", 1, VersionFirst},
	{"stable", 2, VersionFirst},
	{"snapshot", 1, VersionFirst},
	{"bodies", 2, VersionFirst},
	{"hash", 1, VersionFirst},
	{"entry", 1, VersionFirst},
	{"image", 8, VersionFirst},
	{"image", 9, VersionBackups},
	{"image", 10, VersionRehoming},
	{"descriptor", 3, VersionFirst},
	{"descriptor", 4, VersionBackups},
	{"request", 1, VersionFirst},
	{"outcome", 6, VersionFirst},
	{"answer", 7, VersionFirst},
	{"stored", 1, VersionFirst},
	{"catalog image", 1, VersionFirst},
	{"replica preamble", 1, VersionFirst},
	{"raft call", 1, VersionFirst},
	{"verb", 1, VersionFirst},
	{"hello", 3, VersionFirst},
	{"gossip", 1, VersionFirst},
	{"founders", 1, VersionFirst},
}

// Formats returns the forms of bytes.
func Formats() []Format { return append([]Format(nil), formatsKnown...) }

// NewestFormat returns the highest number of a form of bytes, 0 if there is none of that name.
func NewestFormat(name string) (number int) {
	for _, f := range formatsKnown {
		if f.Name == name {
			number = max(number, f.Number)
		}
	}
	return number
}

// NeedsVersion returns the highest version that a command needs as it would be encoded, and what needs it. Below at
// nothing is looked for: the answer is then at or less. Of a [Change] the content is package catalog's to judge.
func NeedsVersion(c Command, at Version) (Version, string) {
	newer := false
	for _, k := range commandsKnown {
		newer = newer || k.since > at
	}
	if !newer {
		return at, ""
	}
	if c, ok := c.(*Commit); ok {
		need := commandsKnown[kindCommit]
		for i := range c.Ops {
			if since, name := NeedsVersion(c.Ops[i].Command, at); since > need.since {
				need = known{name, since}
			}
		}
		return need.since, need.name
	}
	// A kind that wraps another one is newer than that.
	need := commandsKnown[appendCommand(nil, c)[0]]
	return need.since, need.name
}

// Commands returns the kinds of commands by their names, each with the version since when every node knows it.
func Commands() map[string]Version {
	out := map[string]Version{}
	for _, k := range commandsKnown[1:] {
		out[k.name] = k.since
	}
	return out
}

// NewerChanges returns the fields of changes of the catalog that nodes of a version do not know, each a path in JSON.
func NewerChanges(at Version) map[string]Version { return fieldsOf(changesKnown, at) }

// Changes returns all fields of changes of the catalog, those that a node of an earlier version passes over included.
func Changes() map[string]Version {
	out := fieldsOf(changesIgnored, 0)
	for _, k := range changesKnown {
		for _, field := range strings.Fields(k.name) {
			out[field] = k.since
		}
	}
	return out
}

// fieldsOf returns the fields of rows that are newer than a version.
func fieldsOf(rows []known, at Version) map[string]Version {
	out := map[string]Version{}
	for _, k := range rows {
		if k.since <= at {
			continue
		}
		for _, field := range strings.Fields(k.name) {
			out[field] = k.since
		}
	}
	return out
}
