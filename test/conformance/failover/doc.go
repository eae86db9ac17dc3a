// Package failover kills the leader of the busiest partition of a real cluster, again and again, under the load of
// real clients, and then counts. Nothing acknowledged may be missing, nothing completed may come again, no session
// may be out of order, and no number may be left out. No client of a surviving node may have seen an error.
//
// Another test lets nodes join, drain and leave under the same load, of which nobody may notice anything either. With
// -short its cluster has fewer groups, so fewer replicas move.
//
// A third one has queues move to other partitions while the leader of their old home is killed.
//
// Start with failover_test.go; package ledger has what is counted.
package failover
