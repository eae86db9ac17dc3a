package arch

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// maxTextBytes bounds what Words reads of one file; nothing in the repository is that large.
const maxTextBytes = 4 << 20

// machineWords are texts that only the machine of an author could have put there. They are written
// in pieces, so that this file does not accuse itself.
var machineWords = regexp.MustCompile(
	`/(?:wo` + `rk/(?:main|shared)|ro` + `ot/|ho` + `me/[a-z]|tm` + `p/brief|Use` + `rs/[A-Za-z])` +
		`|pro` + `xy\.golang\.org|su` + `m\.golang\.org|regis` + `try\.npmjs|py` + `pi\.org` +
		`|files\.python` + `hosted|reg` + `istry\.yarnpkg`)

// wordless are files whose content others write.
var wordless = []string{"go.sum", "LICENSE"}

// Words reports machine paths and registry hosts in any text file.
func Words(root string) ([]string, error) {
	var sins []string
	err := walkText(root, func(rel string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || slices.Contains(wordless, d.Name()) {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > maxTextBytes {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if m := machineWords.Find(line); m != nil {
				sins = append(sins, fmt.Sprintf("%s:%d: %q belongs to a machine, not to the project",
					rel, i+1, m))
			}
		}
		return nil
	})
	return sins, err
}
