package rest

import (
	"math"
	"net/http"
	"strconv"

	"github.com/busbar-mq/busbar/fsm"
)

// kindNames are the kinds of entity as texts call them.
var kindNames = [...]string{
	fsm.Queue: "Queue", fsm.Topic: "Topic", fsm.Subscription: "Subscription",
}

// descriptionElement is the name of the element that describes an entity of that kind.
func descriptionElement(kind fsm.EntityKind) string { return kindNames[kind] + "Description" }

// describe makes a descriptor from a request. old is nil for a creation. An absent property that may
// change takes its default, because .NET leaves out values that are infinite; an absent one that may
// not change keeps its value (S-261, S-262).
func (a *API) describe(
	kind fsm.EntityKind, name string, p properties, old *fsm.Descriptor,
) (fsm.Descriptor, error) {
	f := &form{properties: p, kind: kindNames[kind]}
	d := fsm.Descriptor{Kind: kind, Name: name}
	if old != nil {
		d = *old
	}
	d.DefaultTTL = f.duration("DefaultMessageTimeToLive", fsm.Unlimited, minTTL, fsm.Unlimited, &d.AsSent.TTL)
	d.EnableBatched = f.flag("EnableBatchedOperations", true)
	d.Status = f.status()
	d.UserMetadata = f.free("UserMetadata", maxMetadataChars)
	d.AutoDeleteOnIdle = f.duration("AutoDeleteOnIdle", fsm.Unlimited, minAutoDelete, fsm.Unlimited, &d.AsSent.Idle)
	if kind != fsm.Subscription {
		a.describeSender(f, &d, old)
	}
	if kind != fsm.Topic {
		a.describeReceiver(f, &d, old)
	}
	if kind == fsm.Subscription && f.flag("IsClientAffine", false) {
		f.fail(badProperty("IsClientAffine", "true", "Client-affine subscriptions are not supported."))
	}
	f.readOptions(&d)
	return d, f.problem.orNil()
}

// describeSender reads what entities have that are sent to: queues and topics.
func (a *API) describeSender(f *form, d *fsm.Descriptor, old *fsm.Descriptor) {
	const duplicates, parts = "RequiresDuplicateDetection", "EnableSubscriptionPartitioning"
	var detect, partitioned, subscriptions *bool
	if old != nil {
		detect, partitioned = &old.DetectDuplicates, &old.Partitioned
		subscriptions = &old.PartitionSubscriptions
	}
	d.DetectDuplicates = f.fixed(duplicates, detect, f.cannotChange(duplicates))
	d.Partitioned = f.fixed("EnablePartitioning", partitioned,
		badRequest("Partitioning cannot be changed for %s.", f.kind))
	least := minDuplicateWindow
	if a.cfg.LiftLimits {
		least = liftedWindow
	}
	d.DuplicateWindow = f.duration("DuplicateDetectionHistoryTimeWindow", 600_000, least,
		maxDuplicateWindow, &d.AsSent.Window)
	d.EnableExpress = f.flag("EnableExpress", false)
	d.SupportOrdering = f.flag("SupportOrdering", d.Kind == fsm.Topic || !d.Partitioned)
	if d.Kind == fsm.Topic {
		d.FilterBeforePublish = f.flag("FilteringMessagesBeforePublishing", false)
		d.PartitionSubscriptions = f.fixed(parts, subscriptions, f.cannotChange(parts))
	}
	a.sizes(f, d, old)
	d.AuthRules = a.authRules(f, old)
	// The service takes and shows it, and lets nobody in without a token either.
	d.AsSent.AnonymousAccess = f.flag("IsAnonymousAccessible", false)
	if d.EnableExpress && d.DetectDuplicates {
		f.fail(badRequest("EnableExpress cannot be combined with RequiresDuplicateDetection."))
	}
}

// describeReceiver reads what entities have that are received from: queues and subscriptions.
func (a *API) describeReceiver(f *form, d *fsm.Descriptor, old *fsm.Descriptor) {
	const session = "RequiresSession"
	var sessions *bool
	if old != nil {
		sessions = &old.RequiresSession
	}
	d.LockDuration = f.lock(fsm.Millis(a.cfg.MaxLockDuration.Milliseconds()), &d.AsSent.Lock)
	d.RequiresSession = f.fixed(session, sessions, f.cannotChange(session))
	d.DeadLetterOnExpiration = f.flag("DeadLetteringOnMessageExpiration", false)
	if d.Kind == fsm.Subscription {
		d.DeadLetterOnFilterError = f.flag("DeadLetteringOnFilterEvaluationExceptions", true)
	}
	d.MaxDelivery = uint32(f.number("MaxDeliveryCount", 10, 1, math.MaxInt32))
	d.ForwardTo = f.address("ForwardTo")
	d.ForwardDeadLettersTo = f.address("ForwardDeadLetteredMessagesTo")
	if d.RequiresSession && d.ForwardTo != "" { // S-210
		f.fail(badRequest("ForwardTo cannot be combined with RequiresSession."))
	}
}

// orNil keeps a nil pointer from becoming an error that is not nil.
func (p *problem) orNil() error {
	if p == nil {
		return nil
	}
	return p
}

// sizes reads the two limits in bytes.
func (a *API) sizes(f *form, d *fsm.Descriptor, old *fsm.Descriptor) {
	const kilobytes = "MaxMessageSizeInKilobytes"
	if a.cfg.Tier == Standard {
		// The service refuses it here; what it shows comes back with an update and is let pass.
		if text, ok := f.text(kilobytes); ok && text != strconv.Itoa(int(a.cfg.MaxMessageBytes>>10)) {
			f.fail(&problem{status: http.StatusBadRequest, subCode: 40000, text: "Bad Request. The size of messages " +
				"cannot be set on a namespace of the Standard tier."})
		}
		d.MaxMessageKilobytes = 0
	} else {
		d.MaxMessageKilobytes = uint32(f.number(kilobytes, 0, 1, maxMessageKilobytes))
	}
	if d.MaxMessageBytes = d.MaxMessageKilobytes << 10; d.MaxMessageBytes == 0 {
		d.MaxMessageBytes = a.cfg.MaxMessageBytes
	}

	const megabytes = "MaxSizeInMegabytes"
	least, most, times := uint64(1), uint64(a.cfg.MaxSizeMegabytes), uint64(1)
	if d.Partitioned {
		times = partitionedSizes
	}
	if d.Partitioned && old != nil {
		// Frozen. A client that read the description sends what it read, one that kept its own
		// sends what it asked for.
		asked := uint64(old.MaxSizeMegabytes)
		given := f.number(megabytes, asked, 1, math.MaxUint32)
		if given != asked && given*partitionedSizes != asked {
			f.fail(f.cannotChange(megabytes))
		}
		d.MaxSizeMegabytes, d.MaxSizeBytes = old.MaxSizeMegabytes, old.MaxSizeBytes
		return
	}
	size := f.number(megabytes, defaultSizeMegabytes, least, most)
	if text, _ := f.text(megabytes); size%1024 != 0 && !a.cfg.LiftLimits {
		f.fail(badProperty(megabytes, text,
			"The value must be a multiple of 1024, such as 1024;2048;3072;4096;5120."))
	}
	d.MaxSizeMegabytes = uint32(size * times)
	d.MaxSizeBytes = size * times << 20
}
