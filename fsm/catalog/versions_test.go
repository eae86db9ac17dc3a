package catalog

import (
	"encoding"
	"reflect"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// fieldsOf calls yield with the path of every field that the JSON of a type can have.
func fieldsOf(t reflect.Type, path string, yield func(string)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		if path != "" {
			name = path + "." + name
		}
		yield(name)
		fieldsOf(f.Type, name, yield)
	}
}

// A field of a change that was added and has no cluster version is found here.
func TestEachFieldOfAChangeHasAVersion(t *testing.T) {
	known, met := fsm.Changes(), map[string]bool{}
	fieldsOf(reflect.TypeFor[Change](), "", func(path string) {
		field := fieldPath(path)
		met[field] = true
		if _, ok := known[field]; !ok {
			t.Errorf("%s has no row in fsm/versions.go, so nobody knows which nodes know it", field)
		}
	})
	for field, since := range known {
		if !met[field] {
			t.Errorf("%s: no change has such a field", field)
		}
		if since > fsm.NewestVersion {
			t.Errorf("%s: version %s is above the newest, %s", field, since, fsm.NewestVersion)
		}
	}
}

func TestAChangeNeedsTheVersionOfItsFields(t *testing.T) {
	epoch := uint64(0)
	for name, c := range map[string]struct {
		change Change
		needs  fsm.Version
		field  string
	}{
		"a wish":           {Change{Wish: &NodeWish{ID: "a"}}, fsm.VersionPlacement, "wish"},
		"a fence":          {Change{Replace: &Exchange{ID: 1, Epoch: &epoch}}, fsm.VersionPlacement, "replace.epoch"},
		"no fence":         {Change{Replace: &Exchange{ID: 1}}, fsm.VersionFirst, ""},
		"a zone":           {Change{Node: &Node{ID: "a", Zone: "z"}}, fsm.VersionPlacement, "node.zone"},
		"no zone":          {Change{Node: &Node{ID: "a"}, Program: fsm.NewestVersion}, fsm.VersionFirst, ""},
		"an entity":        {Change{Create: &fsm.Descriptor{Name: "q", Rules: []fsm.Rule{{Name: "r"}}}}, fsm.VersionFirst, ""},
		"a higher version": {Change{Raise: fsm.NewestVersion, Heard: []Life{{ID: "a"}}}, fsm.VersionFirst, ""},
	} {
		needs, field := Needs(c.change.Command(), fsm.VersionFirst)
		if needs != c.needs || !strings.HasPrefix(field, c.field) || (field == "") != (c.field == "") {
			t.Errorf("%s: %s for %q, want %s for %q", name, needs, field, c.needs, c.field)
		}
		if needs, field := Needs(c.change.Command(), fsm.NewestVersion); needs != fsm.NewestVersion || field != "" {
			t.Errorf("%s at the newest version: %s for %q", name, needs, field)
		}
	}
	if needs, _ := Needs(&fsm.Change{Data: []byte(`{"wish":`)}, fsm.VersionFirst); needs != fsm.VersionFirst {
		t.Errorf("what cannot be read needs %s", needs)
	}
}

// The cluster version rises for nodes that were heard in their present lives, and never falls.
func TestTheClusterVersionNeverFalls(t *testing.T) {
	w := placedWorld(t)
	w.must(Change{Raise: fsm.VersionPlacement})
	w.must(Change{Raise: fsm.VersionPlacement})
	w.refused(Change{Raise: fsm.NewestVersion + 1}, fsm.InvalidArgument)
	heard := []Life{}
	for _, n := range w.s.View().Nodes() {
		heard = append(heard, Life{n.ID, n.Incarnation})
	}
	w.refused(Change{Raise: fsm.VersionUpgrades, Heard: heard[1:]}, fsm.InvalidOperation)
	again := append([]Life{}, heard...)
	again[0].Incarnation += 1000
	w.refused(Change{Raise: fsm.VersionUpgrades, Heard: again}, fsm.InvalidOperation)
	if v := w.s.View().ClusterVersion(); v != fsm.VersionPlacement {
		t.Errorf("cluster version %s", v)
	}
	w.must(Change{Raise: fsm.VersionUpgrades, Heard: heard})
	w.must(Change{Raise: fsm.VersionPlacement})
	if v := w.s.View().ClusterVersion(); v != fsm.VersionUpgrades {
		t.Errorf("cluster version %s", v)
	}
}

// A node whose program is older than the cluster version does not get in, whatever it was before.
func TestAnOlderProgramIsNotRegistered(t *testing.T) {
	w := placedWorld(t)
	comes := func(id fsm.NodeID, life fsm.Incarnation, program fsm.Version) Change {
		return Change{Node: &Node{ID: id, Name: string(id), Incarnation: life}, Program: program}
	}
	w.must(Change{Raise: fsm.VersionPlacement})
	w.must(comes("x", 70, 0)) // below fsm.VersionUpgrades nobody looks
	w.must(Change{Raise: fsm.VersionUpgrades})
	w.refused(comes("x", 71, 0), fsm.Unauthorized)
	w.refused(comes("y", 80, fsm.VersionPlacement), fsm.Unauthorized)
	w.must(comes("y", 80, fsm.VersionUpgrades))
	w.must(comes("x", 71, fsm.NewestVersion+100))
}

// The table of versions has the form that is written here.
func TestTheTableHasTheForm(t *testing.T) {
	if known := fsm.NewestFormat("catalog image"); known != int(imageMagic[7]) {
		t.Errorf("form %d is written, fsm/versions.go has %d", int(imageMagic[7]), known)
	}
}
