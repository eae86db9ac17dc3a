// Package tracing sends the spans of messages to a collector of OpenTelemetry.
//
// The environment variables of OpenTelemetry say where to, as for any program that uses its SDK. Without them [Open] returns
// nil, and the node does not look at traces at all.
//
// Start with tracing.go.
package tracing
