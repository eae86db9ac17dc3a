// Package smoke holds end-to-end scenarios of an application with the official Go SDK. Each has a
// connection and entities of its own.
//
// They run against a node that the test starts, or against whatever SERVICEBUS_CONNECTION_STRING and
// SERVICEBUS_ADMIN_ENDPOINT name. Start with list_test.go.
package smoke
