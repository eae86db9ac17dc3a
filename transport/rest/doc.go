// Package rest is the HTTP management and operations API.
//
// The management API is the ATOM/XML surface that the admin clients of Azure Service Bus speak; it
// is served on the messaging port and on the operations port. The operations API, on the latter
// only, tells health, metrics and the state of the cluster. The package parses, authorises,
// validates and renders; entities are kept by the catalog behind [Entities].
//
// It never answers a management request before the token is verified and the right is there. It never reads a body
// that has no limit, and never tells a client the text of an internal error.
//
// Start with api.go, then entity.go.
package rest
