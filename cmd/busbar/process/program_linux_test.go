package process

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// resident is the memory of files that the process has mapped, in KiB.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(b)
	if found == nil {
		t.Skip("this system does not tell the memory of files")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The program goes out of memory, runs on, and comes back as it is needed.
func TestTheProgramIsForgotten(t *testing.T) {
	before := resident(t)
	for range 3 {
		if err := ForgetProgram(); err != nil {
			t.Fatal(err)
		}
	}
	after := resident(t)
	t.Logf("%d KiB before, %d KiB after", before, after)
	if after >= before {
		t.Errorf("%d KiB of files are in memory, %d KiB before", after, before)
	}
}

func TestASpanOfAddresses(t *testing.T) {
	if begin, end, err := span("00400000-0a1b2000"); begin != 0x400000 || end != 0xa1b2000 || err != nil {
		t.Errorf("%x to %x, %v", begin, end, err)
	}
	for _, bad := range []string{"", "-", "400000", "400000-", "x-500000", "500000-400000", "400000-400000"} {
		if _, _, err := span(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
