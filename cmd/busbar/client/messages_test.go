package client

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/lines"
)

func TestAMessageIsSentAsTheLineSaysOrNotAtAll(t *testing.T) {
	encode := func(line string) []byte {
		t.Helper()
		m, err := lines.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	properties := `{"format":1,"header":{"priority":4},"applicationProperties":[["b","1"],["a",{"int":2}],["c",true]],"data":[{"text":"x"}]}`
	for _, tc := range []struct {
		name, line string
		spare      int // bytes that a batch may have beside the message
		batch      bool
		refused    string
	}{
		{"what fits goes as it is", properties, batchOverhead, true, ""},
		{"what does not fit goes as the library writes it", properties, batchOverhead - 1, false, ""},
		{"a type that the library lacks fits", `{"format":1,"value":{"decimal32":"0x00000001"}}`, batchOverhead, true, ""},
		{"a type that the library lacks does not fit", `{"format":1,"value":{"decimal32":"0x00000001"}}`, 0, false, "outside of a batch it cannot be sent"},
		{"a map inside a body in another order", `{"format":1,"value":{"map":[` + strings.Repeat(`[{"int":1},null],`, 9) + `["z",null]]}}`, 0, false,
			"outside of a batch it cannot be sent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			payload := encode(tc.line)
			m, err := wrap(payload, uint64(len(payload)+tc.spare))
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("got %v, want %s", err, tc.refused)
				}
				return
			}
			if err != nil || (m.Format == formatBatch) != tc.batch {
				t.Fatalf("%+v, %v, want a batch: %t", m, err, tc.batch)
			}
			if tc.batch {
				whole, err := m.MarshalBinary()
				if err != nil || len(whole) > len(payload)+batchOverhead {
					t.Errorf("the batch has %d bytes for %d, %v", len(whole), len(payload), err)
				}
			}
		})
	}
}

func TestLinesOfAStoppedImport(t *testing.T) {
	if got, want := rangesOf([]int{1, 2, 3, 7, 9, 10}), "1-3, 7, 9-10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFileIsThereWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	broken := errors.New("broken")
	err := writeWhole(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("%v is left, %v", left, err)
	}
	if err := writeWhole(path, func(w io.Writer) error { _, err := io.WriteString(w, "all"); return err }); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "all" {
		t.Errorf("%q, %v", text, err)
	}
}
