package sink

import (
	"fmt"
	"os"
	"time"
)

// file appends lines to a file. Only its owner may read a file that it makes.
type file struct {
	name string
	out  *os.File
	// torn says that the file ends in a part of a line, as after a full disk.
	torn bool
}

func openFile(name string) (*file, error) {
	f := &file{name: name}
	return f, f.Reopen()
}

// Reopen opens the name again. If that fails, lines go to the file that is open.
func (f *file) Reopen() error {
	// A pipe would keep its opener until somebody reads it.
	if st, err := os.Stat(f.name); err == nil && !st.Mode().IsRegular() && st.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("%s is no file", f.name)
	}
	out, err := os.OpenFile(f.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if f.out != nil {
		_ = f.out.Close() // each write has told what it had to tell
	}
	f.out, f.torn = out, false
	return nil
}

// Write appends a line. A part of a line, as a full disk leaves it, is cut off again, or ends before the next line.
func (f *file) Write(_ time.Time, _ string, _ bool, line []byte) error {
	if f.torn {
		if _, err := f.out.Write([]byte{'\n'}); err != nil {
			return err
		}
		f.torn = false
	}
	n, err := f.out.Write(line)
	if err != nil && n > 0 {
		f.torn = f.cut(n) != nil
	}
	return err
}

// cut takes the last n bytes away.
func (f *file) cut(n int) error {
	st, err := f.out.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() < int64(n) {
		return fmt.Errorf("%s is no file that can be cut", f.name)
	}
	return f.out.Truncate(st.Size() - int64(n))
}

func (f *file) Close() error { return f.out.Close() }
