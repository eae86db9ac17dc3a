package transport

import "github.com/busbar-mq/busbar/fsm/stored"

// Annotations that the broker sets; what a client sends under these names is dropped.
const (
	annEnqueuedTime    = "x-opt-enqueued-time"
	annSequenceNumber  = "x-opt-sequence-number"
	annEnqueuedNumber  = "x-opt-enqueue-sequence-number"
	annLockedUntil     = "x-opt-locked-until"
	annState           = "x-opt-message-state"
	annScheduledTime   = stored.AnnotationScheduledTime
	annDeadSource      = "x-opt-deadletter-source"
	annLockToken       = "x-opt-lock-token"
	annPartitionID     = "x-opt-partition-id"
	annPartitionKey    = stored.AnnotationPartitionKey    // the client's, kept
	annViaPartitionKey = stored.AnnotationViaPartitionKey // the client's, kept; see viaKey
	annDeliveryTime    = "x-opt-delivery-time"            // the client's, kept; see scheduledTime

	propReason      = stored.PropertyReason
	propDescription = stored.PropertyDescription
)

func brokerAnnotation(key string) bool {
	switch key {
	case annEnqueuedTime, annSequenceNumber, annEnqueuedNumber, annLockedUntil, annState, annScheduledTime,
		annDeadSource, annLockToken, annPartitionID:
		return true
	}
	return false
}
