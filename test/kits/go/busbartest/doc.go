// Package busbartest starts a broker for the tests of an application: a process of its own on free ports, with data that go
// with it. [Start] takes a test and ends the broker with that test. [Open] is for a broker that several tests share.
//
//	func TestAnOrderIsReceived(t *testing.T) {
//		broker := busbartest.Start(t)
//		queue := broker.Queue(t, "orders", nil)
//		client, err := azservicebus.NewClientFromConnectionString(broker.ConnectionString, nil)
//
// The program is that of [Config], of the variable BUSBAR_BINARY, or busbar on the path. If there is none, the package
// starts a container of the image that the variable BUSBAR_IMAGE names.
//
// # Where things are
//
//   - busbartest.go: what a test calls
//   - process.go: the program or the container, and its log
//   - entities.go: queues and topics that a test makes
package busbartest
