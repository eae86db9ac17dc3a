// Package cluster starts, kills and restarts real broker processes for tests, and speaks to their operations port. It
// ends only processes that it started.
//
// All tests start their clusters with it. Command chaos adds namespaces, disks and proxies, by a node's Watcher and by
// the program of its Membership. scripts/cluster.sh starts clusters for people.
//
// Start with Start in cluster.go, then process.go.
package cluster
