// Package node starts, kills and restarts real broker processes for tests, and speaks to their
// operations port. It ends only processes that it started.
package node
