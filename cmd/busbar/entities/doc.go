// Package entities reads files of queues, topics, subscriptions and rules, and makes what they ask for by the
// management API. A file has the shape of the official emulator's Config.json, as JSON or as YAML.
// The package changes nothing that a broker has already.
//
// # Where things are
//
//   - file.go: reading a file, with the line and the pointer of every mistake
//   - names.go: the properties that a file may set
//   - rule.go: rules
//   - schema.go: the JSON Schema of a file
//   - value.go: when two values are the same, and values with types
//   - circle.go: the order of creation, and warnings of forwarding in a circle
//   - apply.go: creating what is missing, and telling what differs
//   - export.go: writing what a broker has as a file
//
// Start with Read and Applier.Apply.
package entities
