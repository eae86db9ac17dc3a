package entities

import "math"

// valueKind is what the values of a property look like.
type valueKind uint8

const (
	aFlag valueKind = iota
	aNumber
	aDuration
	aText
	anAddress
	aStatus
)

// named is a property that a file may set.
type named struct {
	name string
	kind valueKind
	// The bounds of a number that hold whatever the settings of a node are. The broker judges, and knows further ones.
	least, most uint64
	says        string // for people who write a file
}

// The properties that a file may set, by kind of entity. Options may stand with any.
var (
	receiverProperties = []named{
		{name: "LockDuration", kind: aDuration, says: "How long a receiver may work on a message before another one gets it."},
		{name: "RequiresSession", says: "Messages have sessions, and one receiver at a time has a session."},
		{name: "DeadLetteringOnMessageExpiration", says: "An expired message becomes a dead letter."},
		{name: "MaxDeliveryCount", kind: aNumber, least: 1, most: math.MaxInt32,
			says: "How often a message is delivered before it becomes a dead letter."},
		{name: "ForwardTo", kind: anAddress, says: "The queue or topic that gets all messages."},
		{name: "ForwardDeadLetteredMessagesTo", kind: anAddress, says: "The queue or topic that gets all dead letters."},
	}
	senderProperties = []named{
		{name: "MaxSizeInMegabytes", kind: aNumber, least: 1, most: 80 << 10,
			says: "The quota of the entity; a multiple of 1024 unless the node has lift-limits."},
		{name: "RequiresDuplicateDetection", says: "A message is dropped if its message id was seen lately."},
		{name: "DuplicateDetectionHistoryTimeWindow", kind: aDuration, says: "How long a message id is remembered."},
		{name: "SupportOrdering", says: "Taken and shown; it changes nothing."},
		{name: "EnablePartitioning", says: "The entity is spread over partitions."},
		{name: "EnableExpress", says: "Taken and shown; it changes nothing."},
		{name: "MaxMessageSizeInKilobytes", kind: aNumber, least: 1, most: 100 << 10, says: "The largest message that may be sent."},
	}
	topicProperties = []named{
		{name: "FilteringMessagesBeforePublishing", says: "Taken and shown; it changes nothing."},
		{name: "EnableSubscriptionPartitioning", says: "Taken and shown; it changes nothing."},
	}
	subscriptionProperties = []named{
		{name: "DeadLetteringOnFilterEvaluationExceptions", says: "A message whose filter fails becomes a dead letter."},
	}
	commonProperties = []named{
		{name: "DefaultMessageTimeToLive", kind: aDuration, says: "How long a message lives that names no time itself."},
		{name: "EnableBatchedOperations", says: "Taken and shown; it changes nothing."},
		{name: "Status", kind: aStatus, says: "Whether messages may be sent and received."},
		{name: "UserMetadata", kind: aText, says: "A text for people."},
		{name: "AutoDeleteOnIdle", kind: aDuration, says: "How long the entity may be idle before it is deleted."},
	}
	optionProperties = []named{
		{name: "NoDeadLetter", says: "What would become a dead letter is dropped."},
		{name: "ProcessedHistory", says: "Completed messages are kept for a while, without bodies."},
		{name: "ProcessedHistoryBody", says: "Completed messages are kept with their bodies."},
		{name: "AcceptedHistory", says: "Accepted messages are kept for a while."},
		{name: "HistoryCount", kind: aNumber, most: 1_000_000, says: "How many messages a history keeps."},
		{name: "HistoryAge", kind: aDuration, says: "How long a history keeps a message."},
		{name: "HistoryMaxBytes", kind: aNumber, most: 1 << 30, says: "How many bytes a history keeps."},
		{name: "RetryMin", kind: aDuration, says: "How long a message rests after its first failed delivery."},
		{name: "RetryMax", kind: aDuration, says: "How long a message rests at most after a failed delivery."},
		{name: "RetryMultiplierPercent", kind: aNumber, most: 10_000, says: "How much longer each rest is than the one before."},
		{name: "RetryJitterPercent", kind: aNumber, most: 100, says: "How far a rest is drawn apart by chance."},
	}
	correlationNames = []string{"CorrelationId", "MessageId", "To", "ReplyTo", "Label", "SessionId",
		"ReplyToSessionId", "ContentType"}
	filterTypes = []string{"True", "False", "Sql", "Correlation"}
	statusNames = []string{"Active", "Disabled", "SendDisabled", "ReceiveDisabled"}
)

// propertiesOf lists the elements that describe an entity of a kind and may be set.
func propertiesOf(kind string) []named {
	var all []named
	switch kind {
	case Queue:
		all = append(append(all, receiverProperties...), senderProperties...)
	case Topic:
		all = append(append(all, senderProperties...), topicProperties...)
	case Subscription:
		all = append(append(all, receiverProperties...), subscriptionProperties...)
	}
	return append(all, commonProperties...)
}

// namesOf lists the names of these elements.
func namesOf(kind string) []string { return names(propertiesOf(kind)) }

func names(of []named) []string {
	all := make([]string, 0, len(of))
	for _, p := range of {
		all = append(all, p.name)
	}
	return all
}

var optionNames = names(optionProperties)

// propertyName is the element for a key of any case, "" if there is none.
func propertyName(kind, key string) string {
	if name := foldIn(namesOf(kind), key); name != "" {
		return name
	}
	return foldIn(optionNames, key)
}

func isOption(name string) bool { return foldIn(optionNames, name) != "" }
