package raftnet

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

var sampleBeat = Beat{Life: 0x0102030405060708, Number: 300, Heard: 299,
	Leads: []Place{{Group: 3, Term: 5, Last: 200}, {Group: 258, Term: 1, Last: 1}}, Rests: []Place{{Group: 0, Term: 7, Last: 9}}}

// The bytes are pinned, so that nodes of different builds understand each other.
func TestBeatGolden(t *testing.T) {
	got := hex.EncodeToString(AppendBeat(nil, &sampleBeat))
	want := strings.ReplaceAll("01 0102030405060708 ac02 ab02"+ // version, life, number, heard
		"02 0003 05 c801 0102 01 01"+ // two groups that are led
		"01 0000 07 09", " ", "") // one that rests
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestABeatIsReadAsItWasWritten(t *testing.T) {
	b := AppendBeat(nil, &sampleBeat)
	got, err := ParseBeat(b)
	if err != nil || !reflect.DeepEqual(got, &sampleBeat) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, &sampleBeat)
	}
	for n := range b {
		if _, err := ParseBeat(b[:n]); !errors.Is(err, fsm.ErrFormat) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := ParseBeat(append(b, 0)); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("a byte too many: %v", err)
	}
	for _, groups := range [][]Place{{{Group: 3}, {Group: 2}}, {{Group: 3}, {Group: 3}}} {
		for _, wrong := range []Beat{{Leads: groups}, {Rests: groups}} {
			if _, err := ParseBeat(AppendBeat(nil, &wrong)); !errors.Is(err, fsm.ErrFormat) {
				t.Errorf("groups that are not in their order: %v", err)
			}
		}
	}
	b[0] = 2
	if _, err := ParseBeat(b); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("another version: %v", err)
	}
}

// A peer's bytes are hostile: a number of groups that is only claimed takes no memory, and nothing panics.
func TestHostileBeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sample := AppendBeat(nil, &sampleBeat)
	for range 20_000 {
		b := append([]byte(nil), sample...)
		for range 1 + rng.IntN(4) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		if beat, err := ParseBeat(b); err == nil && len(beat.Leads)+len(beat.Rests) > len(b) {
			t.Fatalf("%d bytes hold %d groups", len(b), len(beat.Leads)+len(beat.Rests))
		}
	}
	claimed := append(append([]byte(nil), sample[:13]...), 0xff, 0xff, 0xff, 0xff, 0x0f)
	if _, err := ParseBeat(claimed); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("four thousand million groups: %v", err)
	}
}

func FuzzBeats(f *testing.F) {
	f.Add(AppendBeat(nil, &sampleBeat))
	f.Add(AppendBeat(nil, &Beat{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		beat, err := ParseBeat(b)
		if err != nil {
			return
		}
		if again, err := ParseBeat(AppendBeat(nil, beat)); err != nil || !reflect.DeepEqual(again, beat) {
			t.Errorf("%x: %+v, %v, want %+v", b, again, err, beat)
		}
	})
}
