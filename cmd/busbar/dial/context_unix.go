//go:build unix

package dial

import "io/fs"

// readableByOthers reports whether a file is not its owner's alone.
func readableByOthers(mode fs.FileMode) bool { return mode.Perm()&0o077 != 0 }
