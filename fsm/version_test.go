package fsm

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm/stored"
)

func TestVersionsAsText(t *testing.T) {
	for text, v := range map[string]Version{"0.0-0": 0, "0.0-1": VersionPlacement, "0.1-1": VersionUpgrades,
		"1.0-0": 10000, "12.34-56": 123456} {
		if got := v.String(); got != text {
			t.Errorf("%d is %q, want %q", v, got, text)
		}
		if got, err := ParseVersion(text); got != v || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, got, err, v)
		}
	}
	for _, text := range []string{"", "0.1", "0-1", "0.1-", "0.100-1", "0.1-100", "-1.0-0", "0.1-1-1", "a.b-c", "1000.0-0"} {
		if v, err := ParseVersion(text); !errors.Is(err, ErrFormat) {
			t.Errorf("%q was read as %d, %v", text, v, err)
		}
	}
}

// Data is opened by programs that know its version, and by no others. What they say names the release.
func TestDataOfAnotherVersionIsNotOpened(t *testing.T) {
	for _, c := range []struct {
		data, oldest, newest Version
		want                 string
	}{
		{0, 0, 1, ""}, {1, 0, 1, ""}, {101, 1, 101, ""},
		{102, 1, 101, "this program, p, knows versions up to 0.1-1: start release 0.1 or later"},
		{1, 101, 201, "this program, p, works with 0.1-1 and later: start release 0.1 first"},
	} {
		err := c.data.Open(c.oldest, c.newest, "p")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("data of %s by a program that knows %s to %s: %v, want %q", c.data, c.oldest, c.newest, err, c.want)
		}
	}
}

// A program works with the minor release before its own, and with no older one.
func TestOneMinorReleaseIsBetweenPrograms(t *testing.T) {
	const before = (NewestVersion/versionMinor - 1) * versionMinor // of a first minor release a person has to judge
	if NewestVersion%versionMajor >= versionMinor && (OldestVersion < before || OldestVersion >= before+versionMinor) {
		t.Errorf("the oldest version is %s beside %s, want one of the minor release before", OldestVersion, NewestVersion)
	}
	type program struct{ newest, oldest Version }
	releases := []program{{99, 0}, {199, 0}, {299, 100}, {399, 200}} // 0.0 to 0.3, each with its last step
	for i, a := range releases {
		for j, b := range releases {
			want := max(i, j)-min(i, j) <= 1
			if got := a.newest.Beside(a.oldest, b.newest, b.oldest); got != want {
				t.Errorf("0.%d beside 0.%d: %v", i, j, got)
			}
		}
	}
}

// A command that was added and has no cluster version is found here, and so is a form of bytes.
func TestEachCommandHasAVersion(t *testing.T) {
	met := map[uint8]bool{}
	for name, c := range goldenCommands() {
		kind := appendCommand(nil, c)[0]
		met[kind] = true
		if int(kind) >= len(commandsKnown) || commandsKnown[kind].name == "" {
			t.Errorf("%s: its kind %d has no row in commandsKnown, so nobody knows which nodes know it", name, kind)
		}
	}
	for kind := 1; kind < len(commandsKnown); kind++ {
		switch k := commandsKnown[kind]; {
		case !met[uint8(kind)]:
			t.Errorf("kind %d: no command of goldenCommands is encoded so", kind)
		case k.since > NewestVersion:
			t.Errorf("%s: version %s is above the newest, %s", k.name, k.since, NewestVersion)
		}
	}
	for name, number := range map[string]int{"entry": EntryVersion, "hash": HashVersion, "image": imageVersion,
		"descriptor": descriptorVersion, "request": wireVersion, "outcome": wireVersion6, "answer": wireVersion7,
		"stored": int((&stored.Message{}).AppendHead(nil)[0])} {
		if newest := NewestFormat(name); newest != number {
			t.Errorf("%s: form %d is written, formatsKnown has %d", name, number, newest)
		}
	}
}

// Each form is compared with what its package writes. The names are here so that a new row cannot be forgotten.
func TestEachFormIsCompared(t *testing.T) {
	compared := map[string]string{}
	for where, names := range map[string]string{
		"here":        "entry, hash, image, descriptor, request, outcome, answer, stored",
		"cmd/busbar":  "directory, log-record, stable, snapshot, bodies",
		"fsm/catalog": "catalog image",
		"partition":   "verb",
		"raftnet":     "raft call",
		"replica":     "replica preamble",
		"cluster":     "hello, gossip, founders",
	} {
		for _, name := range strings.Split(names, ", ") {
			compared[name] = where
		}
	}
	for _, f := range Formats() {
		if compared[f.Name] == "" {
			t.Errorf("form %s: no test compares its number with what is written", f.Name)
		}
	}
}

// A command is judged by the kind that it is encoded as, inside a transaction, too.
func TestACommandNeedsAVersion(t *testing.T) {
	was := commandsKnown
	defer func() { commandsKnown = was }()
	commandsKnown[kindRevokeBy].since, commandsKnown[kindSettle].since = 205, 203
	by := &Revoke{Number: 1, Operator: "root"}
	commit := &Commit{Ops: []Op{{Entity: 1, Command: &Enqueue{Messages: []Message{{}}}}, {Entity: 1, Command: &Settle{}}}}
	for _, c := range []struct {
		name  string
		c     Command
		at    Version
		needs Version
		what  string
	}{
		{"a new kind", by, VersionUpgrades, 205, "Revoke that names its operator"},
		{"a new kind at its version", by, 205, 205, ""},
		{"an old kind of the same type", &Revoke{Number: 1}, VersionUpgrades, 0, "Revoke"},
		{"a new kind in a transaction", commit, 202, 203, "Settle"},
		{"the same at its version", commit, 203, 203, "Settle"},
	} {
		if needs, what := NeedsVersion(c.c, c.at); needs != c.needs || what != c.what {
			t.Errorf("%s: %s for %q, want %s for %q", c.name, needs, what, c.needs, c.what)
		}
	}
}

func TestAVersionErrorSaysWhatToDo(t *testing.T) {
	err := error(&VersionError{What: "HoldForwards", Needs: 102, Has: VersionPlacement})
	if want := "HoldForwards needs cluster version 0.1-2, and the cluster has 0.0-1: run release 0.1 or later on every " +
		"node, then busbar cluster upgrade finalize"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if !errors.Is(err, ErrVersion) || !errors.Is(err, ErrBusy) {
		t.Error("neither busy nor about a version")
	}
}

// Rows of calls and forms name each once.
func TestTheTablesNameEachOnce(t *testing.T) {
	kinds, forms := map[uint8]bool{}, map[string]bool{}
	for _, c := range Calls() {
		if kinds[c.Kind] || c.Since > NewestVersion {
			t.Errorf("call %d: named twice, or of a version above the newest", c.Kind)
		}
		kinds[c.Kind] = true
	}
	for _, f := range Formats() {
		key := fmt.Sprint(f.Name, f.Number)
		if forms[key] || f.Since > NewestVersion {
			t.Errorf("form %s: named twice, or of a version above the newest", key)
		}
		forms[key] = true
	}
	want := map[string]Version{"wish": VersionPlacement, "wish.id": VersionPlacement, "wish.wish": VersionPlacement,
		"forget": VersionPlacement, "forget.id": VersionPlacement, "forget.incarnation": VersionPlacement,
		"replace.epoch": VersionPlacement, "node.zone": VersionPlacement,
		"restore": VersionBackups, "descriptor.Prefixes": VersionBackups, "descriptor.Origins": VersionRehoming,
		"rehome": VersionRehoming, "rehome.id": VersionRehoming, "rehome.moves": VersionRehoming, "rehome.moves.share": VersionRehoming,
		"rehome.moves.to": VersionRehoming, "rehomed": VersionRehoming, "rehomed.id": VersionRehoming, "rehomed.epoch": VersionRehoming,
		"rehomed.step": VersionRehoming, "rehomed.why": VersionRehoming, "seen": VersionSeen}
	if newer := NewerChanges(VersionFirst); !reflect.DeepEqual(newer, want) {
		t.Errorf("fields above %s: %v, want %v", VersionFirst, newer, want)
	}
}
