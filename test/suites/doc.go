// Package suites runs the tests that the authors of clients wrote for the original service, unmodified, against a
// real node. They are the Go SDK's own live tests, and the conformance tests of gocloud.dev. Beside them real
// applications of frameworks that have the original's transport built in, each in a folder with a run.sh: Celery,
// Camel, Spring, and KEDA's scaler.
//
// Their code is not in this repository: go.mod pins the modules, and `go test -c` builds the tests
// from where Go keeps them. Each test of the SDK runs in a process of its own, so that one that hangs
// or panics costs one test. bed_test.go sets up what these tests expect of the service: TLS under the
// name that they dial, keys with few rights, an identity that hands out tokens, two queues.
//
//	make build && cd test/suites && go test .
//	cd test/suites && go test -run 'TestTheGoSDK/TestReceiver' -v .
//
// Start with azservicebus_test.go; azservicebus.txt lists the tests.
package suites
