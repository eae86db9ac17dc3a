// Package lines is the form of messages as lines of JSON, for people and programs that move messages between queues and
// brokers. docs/formats/lines.md describes it.
//
// A line holds all that AMQP says of a message: every type of value, the order of maps, and each section. The package
// connects to nothing and decides nothing: it turns an encoded message into a [Message] and back.
//
// Start with [Decode] and [Message.Encode].
package lines
