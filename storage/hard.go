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

// versionSetting is the hard setting with the cluster version of the directory. It is the only one that changes, and
// only rises ([Dir.KeepVersion]). A program from before there were cluster versions refuses it as one that it does not
// have. A directory without it is of version 0.
const versionSetting = "cluster"

// hardSettings is the content of hard.json: what must not change while there is data.
type hardSettings struct {
	Log     string         `json:"log"`
	Formats map[string]int `json:"formats"`
	Rooms   map[string]int `json:"rooms"`
}

func hardOf(cfg Config) hardSettings {
	rooms := make(map[string]int, len(cfg.Hard)+1)
	maps.Copy(rooms, cfg.Hard)
	if cfg.FirstVersion > 0 {
		rooms[versionSetting] = cfg.FirstVersion
	}
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

// checkHard writes the hard settings at the first start and compares them at every other; it returns the cluster version
// of the directory. fresh says that the directory holds no data: missing settings are no loss then.
func checkHard(cfg *Config, fsys FS, fresh bool) (version int, err error) {
	name, want := filepath.Join(cfg.Dir, hardFile), hardOf(*cfg)
	text, err := readSmall(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		if !fresh {
			return 0, fmt.Errorf("%s: %w: missing, but there is data beside it", name, ErrCorrupt)
		}
		return cfg.FirstVersion, writeHard(fsys, name, want)
	}
	if err != nil {
		return 0, err
	}
	var got hardSettings
	if err := json.Unmarshal(text, &got); err != nil {
		return 0, fmt.Errorf("read %s: %w: %w", name, ErrCorrupt, err)
	}
	// First of all: a directory of a later version may differ in any other way.
	version = got.Rooms[versionSetting]
	if cfg.AdmitVersion != nil {
		if err := cfg.AdmitVersion(version); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	delete(got.Rooms, versionSetting)
	delete(want.Rooms, versionSetting)
	if diffs := diffHard(got, want); len(diffs) > 0 {
		return 0, &HardError{File: name, Diffs: diffs}
	}
	return version, nil
}

func writeHard(fsys FS, name string, settings hardSettings) error {
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	return writeSmall(fsys, name, text)
}

// Version returns the cluster version that the directory tells, 0 if it tells none.
func (d *Dir) Version() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version
}

// KeepVersion has the directory tell a cluster version, durably, unless it tells that or a higher one.
func (d *Dir) KeepVersion(version int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return ErrClosed
	case version <= d.version:
		return nil
	}
	settings := hardOf(d.cfg)
	settings.Rooms[versionSetting] = version
	if err := writeHard(d.fsys, filepath.Join(d.cfg.Dir, hardFile), settings); err != nil {
		return err
	}
	d.version = version
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
