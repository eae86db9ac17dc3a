// Package waist sends the requests of a front end through the waist: commands and queries, to whichever share of an
// entity they are for.
//
// A [Pump] numbers the requests of one sequence, so that a partition knows a request that comes again (A6). A [Source]
// makes the pumps of one node and gives each request its id. It starts a new incarnation when the cluster has declared
// the old one lost. A [Receiver] asks all shares of an entity, and waits at them. The package knows no connection, no
// link and no frame, and decides nothing about messages.
//
// Where things are:
//
//	source.go    the source: ids of requests, incarnations, questions that are asked again
//	pool.go      pumps that are lent to callers without a link
//	receiver.go  receives from several shares
//	janitor.go   results that partitions need not remember any more
//	activity.go  entities that are in use by readers
//	holders.go   names of those who took a lock, for operators
//	shares.go    keys of shares
//	endings.go   what an error or refusal says about the next attempt
//
// Start with [Source.Propose].
package waist
