// Package events has the one type that the settings of a scaler name.
package events

// EventRecorder tells Kubernetes of events; without one nothing is told.
type EventRecorder interface {
	Eventf(regarding, related any, kind, reason, action, note string, args ...any)
}
