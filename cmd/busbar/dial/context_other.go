//go:build !unix

package dial

import "io/fs"

// readableByOthers is not known: modes of files do not tell that here.
func readableByOthers(fs.FileMode) bool { return false }
