// Package refusal gives every refusal of the front ends what its reader needs (S-1). Readers need a code of the table
// of S-2, an id that the server's log knows, the path of the entity, and the time.
//
// It must never let a client fill the log. Lines are bounded per code, and one line tells of many refusals without a
// line of their own, with the range of their ids. It writes no text of its own for clients, knows neither AMQP nor
// HTTP, and decides nothing.
//
// Start with [Log.Note].
package refusal
