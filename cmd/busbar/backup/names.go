package backup

import (
	"regexp"
	"strconv"
	"strings"
)

// Names of the files of a backup. The number of a file is that of its partition, and 0 for the catalog.
const (
	// CatalogName holds the entities.
	CatalogName = "catalog"
	// ManifestName is the file that makes a backup whole.
	ManifestName = "backup.json"

	partitionPrefix = "partition-"
	maxPartition    = 1<<16 - 1
	manifestNumber  = 1<<32 - 1 // of backup.json in a pipe
	sealedSuffix    = ".age"
)

// PartitionName is the name of the file of a partition.
func PartitionName(partition uint16) string { return partitionPrefix + strconv.Itoa(int(partition)) }

// numberOf finds the number of a file of chunks. Names come from backup.json and from directories, so all but the names of
// this format are refused.
func numberOf(name string) (number uint32, ok bool) {
	if name == CatalogName {
		return 0, true
	}
	digits, ok := strings.CutPrefix(name, partitionPrefix)
	if !ok || len(digits) > 5 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || PartitionName(uint16(n)) != name {
		return 0, false
	}
	return uint32(n), true
}

// nameOf is the name of the file with that number.
func nameOf(number uint32) (name string, ok bool) {
	switch {
	case number == 0:
		return CatalogName, true
	case number == manifestNumber:
		return ManifestName, true
	case number <= maxPartition:
		return PartitionName(uint16(number)), true
	}
	return "", false
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// GoodName tells whether a new backup may have that name, in every kind of store.
func GoodName(name string) bool { return namePattern.MatchString(name) }
