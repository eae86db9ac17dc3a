// Package namespaces runs a test or a command again in network and mount namespaces of its own. Their
// networks and mounts vanish with the last process in them, whatever happens to the test.
//
// It needs root. Missing tells why a machine cannot do it, so that a test can say what it skips.
package namespaces
