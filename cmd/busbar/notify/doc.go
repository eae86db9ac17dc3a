// Package notify tells the service manager of systemd how the node is: that it serves, reloads, stops, and lives.
//
// The manager names a socket of packets in the environment; each packet holds lines of NAME=VALUE (sd_notify(3)). Without
// such a socket every call does nothing. The package reads no environment and no clock but the one that the manager
// compares with.
//
// Start with [Open].
package notify
