package client

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressInASentence(t *testing.T) {
	for name, tc := range map[string]struct {
		row  moveRow
		want string
	}{
		"a snapshot is on its way": {moveRow{Partition: 3, Node: "n4", From: "n2", EntriesLeft: 12, BytesSent: 3 << 29, BytesTotal: 4 << 30,
			BytesPerSecond: 32 << 20},
			"partition 3: n4 is filled by n2: 1.5 GiB of 4.0 GiB are sent at 32.0 MiB a second, about 1m20s left, 12 entries left"},
		"a snapshot begins": {moveRow{Partition: 3, Node: "n4", From: "n2", BytesTotal: 1000},
			"partition 3: n4 is filled by n2: 0 B of 1000 B are sent, 0 entries left"},
		"the log follows": {moveRow{Partition: 1, Node: "n4", From: "n2", EntriesLeft: 7},
			"partition 1: n4 is filled by n2: 7 entries left"},
	} {
		if got := tc.row.text(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A command that waits prints what is new: the state of the node at once, what moves each five seconds.
func TestAWaitPrintsWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var p progressLines
		print := func(text string, rows ...moveRow) {
			t.Helper()
			if err := p.print(&out, text, rows); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		for left := range uint64(12) {
			print("n4 holds 2 replicas", moveRow{Partition: 1, Node: "n5", From: "n2", EntriesLeft: 20 - left})
		}
		print("n4 holds 1 replica")
		for range 10 {
			print("n4 holds 1 replica")
		}
		const line = "  partition 1: n5 is filled by n2: "
		want := "n4 holds 2 replicas\n" + line + "20 entries left\n" + line + "15 entries left\n" + line + "10 entries left\n" +
			"n4 holds 1 replica\n"
		if got := out.String(); got != want {
			t.Errorf("printed\n%s\nwant\n%s", got, want)
		}
	})
}
