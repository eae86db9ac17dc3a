package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Versions of the formats that this room writes. One changes when old bytes can no longer be read
// by new code, or the other way round.
const (
	formatDirectory = 1
	formatLogRecord = 1
	formatStable    = 2
	formatSnapshot  = 1
	formatBodies    = 2
)

const hardFile = "hard.json"

// hardSettings is the content of hard.json: what must not change while there is data.
type hardSettings struct {
	Log     string         `json:"log"`
	Formats map[string]int `json:"formats"`
	Rooms   map[string]int `json:"rooms"`
}

func hardOf(cfg Config) hardSettings {
	rooms := make(map[string]int, len(cfg.Hard))
	maps.Copy(rooms, cfg.Hard)
	return hardSettings{
		Log: cfg.Log,
		Formats: map[string]int{
			"directory":  formatDirectory,
			"log-record": formatLogRecord,
			"stable":     formatStable,
			"snapshot":   formatSnapshot,
			"bodies":     formatBodies,
		},
		Rooms: rooms,
	}
}

// HardError says which hard settings of the disk are not those of this program. The node must not
// start: it would read its data wrongly.
type HardError struct {
	File  string
	Diffs []string
}

func (e *HardError) Error() string {
	return fmt.Sprintf("hard settings in %s are not those of this program: %s",
		e.File, strings.Join(e.Diffs, "; "))
}

// checkHard writes the hard settings at the first start and compares them at every other. fresh says that the
// directory holds no data: missing settings are no loss then.
func checkHard(fsys FS, dir string, want hardSettings, fresh bool) error {
	name := filepath.Join(dir, hardFile)
	text, err := readSmall(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		if !fresh {
			return fmt.Errorf("%s: %w: missing, but there is data beside it", name, ErrCorrupt)
		}
		text, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			return err
		}
		return writeSmall(fsys, name, text)
	}
	if err != nil {
		return err
	}
	var got hardSettings
	if err := json.Unmarshal(text, &got); err != nil {
		return fmt.Errorf("read %s: %w: %w", name, ErrCorrupt, err)
	}
	if diffs := diffHard(got, want); len(diffs) > 0 {
		return &HardError{File: name, Diffs: diffs}
	}
	return nil
}

func diffHard(got, want hardSettings) []string {
	var diffs []string
	if got.Log != want.Log {
		diffs = append(diffs, fmt.Sprintf("log: disk has %q, configured %q", got.Log, want.Log))
	}
	diffs = append(diffs, diffNumbers("format ", got.Formats, want.Formats)...)
	return append(diffs, diffNumbers("", got.Rooms, want.Rooms)...)
}

func diffNumbers(prefix string, got, want map[string]int) []string {
	names := slices.Collect(maps.Keys(got))
	names = slices.AppendSeq(names, maps.Keys(want))
	slices.Sort(names)
	var diffs []string
	for _, name := range slices.Compact(names) {
		g, onDisk := got[name]
		w, known := want[name]
		switch {
		case !onDisk:
			diffs = append(diffs, fmt.Sprintf("%s%s: disk has none, program has %d", prefix, name, w))
		case !known:
			diffs = append(diffs, fmt.Sprintf("%s%s: disk has %d, program has none", prefix, name, g))
		case g != w:
			diffs = append(diffs, fmt.Sprintf("%s%s: disk has %d, program has %d", prefix, name, g, w))
		}
	}
	return diffs
}
