package fsm

type dueKind uint8

// Kinds of deadlines. The order decides among things due at the same time.
const (
	dueSession dueKind = 1 + iota
	dueLock
	dueActivate
	dueIdle
	duePause
	duePauseSession
	dueUpload
	dueFormer // a receiver from which a session was taken over has not left (S-333)
)

// due is one deadline of a share, by one of the clocks.
type due[T instant] struct {
	at   T
	kind dueKind
	sub  SubQueue
	id   uint64 // arrival index or number of the session
}

func (a due[T]) less(b due[T]) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.kind != b.kind:
		return a.kind < b.kind
	case a.sub != b.sub:
		return a.sub < b.sub
	}
	return a.id < b.id
}

// leaseDue is a deadline of everything but dueActivate, wallDue one of dueActivate.
type (
	leaseDue = due[Lease]
	wallDue  = due[Wall]
)

// nextDue is the earliest deadline of one share by one of the clocks.
type nextDue[T instant] struct {
	at     T
	entity EntityID
}

func (a nextDue[T]) less(b nextDue[T]) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.entity < b.entity
}
