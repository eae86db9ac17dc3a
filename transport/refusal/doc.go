// Package refusal gives every refusal of the front ends what its reader needs: a code of the table of
// S-2, an id that the server's log knows, the path of the entity, and the time (S-1).
//
// It must never let a client fill the log: lines are bounded per code, and what has none of its own is
// told by a line for many, with the range of their ids. It writes no text of its own for clients, knows
// neither AMQP nor HTTP, and decides nothing.
//
// Start with [Log.Note].
package refusal
