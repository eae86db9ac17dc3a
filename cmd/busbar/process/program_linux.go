package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetProgram gives back the memory of the program's own code and constants. The system reads a page again, from its
// cache, when the program needs it. Pages that only the start needed stay away. A part that the loader has changed is kept.
func ForgetProgram() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var errs []error
	var begin, end uint64
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case len(words) > 5 && strings.Contains(words[0], "-"):
			begin, end = 0, 0
			if (words[1] == "r-xp" || words[1] == "r--p") && strings.Join(words[5:], " ") == path {
				begin, end, err = span(words[0])
				errs = append(errs, err)
			}
		case len(words) == 3 && words[0] == "Anonymous:" && words[1] == "0" && end > 0:
			if _, _, no := unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED); no != 0 {
				errs = append(errs, fmt.Errorf("madvise: %w", no))
			}
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}

// span reads two addresses of a line of /proc/self/smaps.
func span(text string) (begin, end uint64, err error) {
	from, to, _ := strings.Cut(text, "-")
	begin, err = strconv.ParseUint(from, 16, 64)
	if err == nil {
		end, err = strconv.ParseUint(to, 16, 64)
	}
	if err == nil && begin >= end {
		err = fmt.Errorf("%s is no span of addresses", text)
	}
	return begin, end, err
}
