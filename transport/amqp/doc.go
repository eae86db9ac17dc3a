// Package amqp is the AMQP 1.0 wire format: frames, performatives, delivery states, termini,
// messages and values, both ways. It opens no sockets and knows no broker.
//
// Three rules hold everywhere in it:
//
//   - Bytes are hostile. All input gives a result or an error that wraps ErrFraming or ErrDecode, never a panic. It
//     never takes more memory than a small constant times its size.
//   - Decoded byte fields ([]byte and Raw) are views into the bytes that were given. Those of a
//     frame are good until the next Reader.ReadFrame; whoever keeps one longer clones it.
//   - Every performative is written with all its fields, absent ones as null, because clients
//     index fields by position. Descriptors are small ulongs, because clients skip them blindly.
//
// Start with Reader.ReadFrame and DecodePerformative for what comes in, AppendFrame and
// AppendTransfer for what goes out, and ParseMessage for what a transfer carries.
package amqp
