package transport

// Annotations that the broker sets; what a client sends under these names is dropped.
const (
	annEnqueuedTime    = "x-opt-enqueued-time"
	annSequenceNumber  = "x-opt-sequence-number"
	annEnqueuedNumber  = "x-opt-enqueue-sequence-number"
	annLockedUntil     = "x-opt-locked-until"
	annState           = "x-opt-message-state"
	annScheduledTime   = "x-opt-scheduled-enqueue-time"
	annDeadSource      = "x-opt-deadletter-source"
	annLockToken       = "x-opt-lock-token"
	annPartitionID     = "x-opt-partition-id"
	annPartitionKey    = "x-opt-partition-key"     // the client's, kept
	annViaPartitionKey = "x-opt-via-partition-key" // the client's, kept; see viaKey
	annDeliveryTime    = "x-opt-delivery-time"     // the client's, kept; see scheduledTime

	propReason      = "DeadLetterReason"
	propDescription = "DeadLetterErrorDescription"
)

func brokerAnnotation(key string) bool {
	switch key {
	case annEnqueuedTime, annSequenceNumber, annEnqueuedNumber, annLockedUntil, annState, annScheduledTime,
		annDeadSource, annLockToken, annPartitionID:
		return true
	}
	return false
}
