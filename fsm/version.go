package fsm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Version is a cluster version: what every node of a cluster knows of entries, changes, calls and formats. It is a
// number that the catalog keeps: major*10000 + minor*100 + step. Major and minor are those of the release; a step is
// one addition on the way to it. The patches of a release add no step.
//
// Its text is "0.1-2": the second step towards release 0.1, and what all of 0.1 has if no third one followed.
type Version uint32

const (
	versionMajor = 10000
	versionMinor = 100
)

// Release returns the release that has the version, such as "0.1".
func (v Version) Release() string {
	return fmt.Sprintf("%d.%d", v/versionMajor, v%versionMajor/versionMinor)
}

// String returns the text of a version.
func (v Version) String() string { return fmt.Sprintf("%s-%d", v.Release(), v%versionMinor) }

// ParseVersion reads the text of a version. The error wraps ErrFormat.
func ParseVersion(text string) (Version, error) {
	release, step, stepped := strings.Cut(text, "-")
	major, minor, dotted := strings.Cut(release, ".")
	var v Version
	for _, part := range []struct {
		text string
		unit Version
		most uint64
	}{{major, versionMajor, 999}, {minor, versionMinor, 99}, {step, 1, 99}} {
		n, err := strconv.ParseUint(part.text, 10, 16)
		if err != nil || n > part.most || !stepped || !dotted {
			return 0, fmt.Errorf("%q is no cluster version such as %s: %w", text, NewestVersion, ErrFormat)
		}
		v += Version(n) * part.unit
	}
	return v, nil
}

// Beside reports whether a program that knows the versions from oldest to v may run beside one that knows those from
// theirOldest to theirs.
func (v Version) Beside(oldest, theirs, theirOldest Version) bool {
	return v >= theirOldest && theirs >= oldest
}

// Open returns why a program that works with the versions from oldest to newest must not open data of a cluster of version
// v, nil if it may. program is what people call the program.
func (v Version) Open(oldest, newest Version, program string) error {
	switch {
	case v > newest:
		return fmt.Errorf("the data is of cluster version %s, and this program, %s, knows versions up to %s: start release "+
			"%s or later; an upgrade that is finalized is not taken back", v, program, newest, v.Release())
	case v < oldest:
		return fmt.Errorf("the data is of cluster version %s, and this program, %s, works with %s and later: start release "+
			"%s first, finalize that upgrade, then start this program again", v, program, oldest, oldest.Release())
	}
	return nil
}

// VersionError says that the cluster does not have the version that something needs. Nothing happened; it may be asked
// again when the version has risen.
type VersionError struct {
	What       string // of the table in versions.go
	Needs, Has Version
}

// ErrVersion is what a [VersionError] wraps, beside ErrBusy.
var ErrVersion = errors.New("the cluster version is too low")

// Error says what an operator can do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s needs cluster version %s, and the cluster has %s: run release %s or later on every node, then "+
		"busbar cluster upgrade finalize", e.What, e.Needs, e.Has, e.Needs.Release())
}

// Unwrap returns ErrVersion and ErrBusy.
func (e *VersionError) Unwrap() []error { return []error{ErrVersion, ErrBusy} }
