// Package ledger counts what the clients of a test saw: which messages were accepted, delivered and settled, and what
// must not have happened. Its judgement names what was lost, came twice, changed places or left a number out.
//
// Start with ledger.go.
package ledger
