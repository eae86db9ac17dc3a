package main

import (
	"fmt"
	"strings"
)

// maxZone bounds the name of a zone; the catalog takes up to 256 bytes.
const maxZone = 128

// validZone reports whether a zone can be shown in tables and logs as it is.
func validZone(zone string) bool {
	return len(zone) <= maxZone && !strings.ContainsFunc(zone, func(r rune) bool { return r <= ' ' || r > '~' })
}

// defaultPartitions is how many data partitions a cluster is founded with if nobody says another number.
const defaultPartitions = 6

// wantedPartitions is how many data partitions a setting asks for, 0 if nobody set it. A node that leaves the number open
// keeps no cluster from having more. A number that a reload brings is not the default.
func wantedPartitions(set bool, n int) int {
	if !set && n == defaultPartitions {
		return 0
	}
	return n
}

// checkPartitions is the alarm of a node that wants fewer partitions than the cluster has.
const checkPartitions = "partitions"

// tooFewPartitions refuses a number of partitions below that of the cluster. Partitions are never taken away.
func tooFewPartitions(wanted, has int) error {
	if wanted == 0 || wanted >= has {
		return nil
	}
	return fmt.Errorf("partitions is %d, and the cluster has %d: partitions are never taken away, because messages lie in "+
		"them; set it to %d or more", wanted, has, has)
}
