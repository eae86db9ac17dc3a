// Package stored is the form in which a message is kept: in log entries, in segments of bodies and in snapshots.
//
// It owns the layout of docs/formats/message.md and the reading of AMQP values in it. The front end writes a message
// with [Message.AppendHead] and takes it apart with [Parse]. The state machine reads what rules ask for with [Sent].
// A node that sends a large message in parts asks [HeadBytes] what must travel first.
//
// The package is pure and holds no state. Its bytes come from clients, from other nodes and from disks. So nothing in
// it panics on bytes, and nothing reads beyond their end. [Parse] refuses what it does not know, because a client must
// never get half a message. [Sent] takes a malformed value as absent, because a replica must never stop at one.
//
// A version once written stays readable for ever.
//
// Start with layout.go.
package stored
