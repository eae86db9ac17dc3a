// Package scenario proves the acceptance scenarios of the specification (semantics.md, section 9), each in a test of
// its own that is named after it: TestT57... Everything is real but the clock, the network and the disks. Three whole
// nodes run in a bubble of virtual time, and clients speak AMQP with them through the library of the official SDK. So
// a scenario may wait an hour, and a lock expires to the millisecond.
//
// A scenario reads as the specification says it: given, when, then. Start with bench_test.go, which
// has the words, and any of the t_*_test.go files.
package scenario
