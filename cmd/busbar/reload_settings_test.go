package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tableOfSettings reads the page of the configuration: each setting, and whether it takes a reload or a restart.
func tableOfSettings(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for prefix, heading := range map[string]string{"": "| setting |", "limits.": "| limit |"} {
		_, section, ok := strings.Cut(string(page), "\n"+heading)
		if !ok {
			t.Fatalf("the page has no table that begins with %q", heading)
		}
		section, _, _ = strings.Cut(section, "\n<!-- /")
		for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*? \\| (reload|restart) \\|").FindAllStringSubmatch(section, -1) {
			if table[prefix+row[1]] != "" {
				t.Errorf("%s is there twice", row[1])
			}
			table[prefix+row[1]] = row[2]
		}
	}
	return table
}

// Every setting is in the tables of the page, and what the table says of it is true: one that takes a reload is in
// effect after it, and one that takes a restart is named and keeps its value.
func TestTheTableOfSettingsIsTrue(t *testing.T) {
	table := tableOfSettings(t)
	names := settingNames()
	for name := range table {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no setting", name)
		}
	}
	for _, name := range names {
		r := &reloader{}
		running := Config{TLSCert: "c", TLSKey: "k", TLSCA: "a", GossipKey: "g"} // what a reload does not turn on is on
		r.running.Store(&running)
		read := running
		value := settingValues(&read)[name]
		changeValue(t, name, value)
		next, done := r.merge(&read)
		got := settingValues(next)[name].Interface()
		switch table[name] {
		case "reload":
			if !slices.Equal(done.Changed, []string{name}) || len(done.Restart) > 0 || !reflect.DeepEqual(got, value.Interface()) {
				t.Errorf("%s does not change by a reload: %+v", name, done)
			}
		case "restart":
			before := settingValues(&running)[name].Interface()
			if !slices.Equal(done.Restart, []string{name}) || len(done.Changed) > 0 || !reflect.DeepEqual(got, before) {
				t.Errorf("%s changes by a reload: %+v", name, done)
			}
		default:
			t.Errorf("docs/configuration.md does not say what %s takes", name)
		}
	}
	for _, s := range append(settings(), environmentOnly()...) {
		if !slices.Contains(names, s.name) {
			t.Errorf("the flag or variable of %s has no name in the file", s.name)
		}
	}
}

// changeValue gives a setting another value.
func changeValue(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		t.Fatalf("%s has a value of a kind that this test does not change: %s", name, v.Kind())
	}
}

// What turns TLS or encryption on or off takes a restart.
func TestEncryptionIsTurnedOnByARestart(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"tls-cert": func(c *Config) { c.TLSCert = "c" }, "tls-key": func(c *Config) { c.TLSKey = "k" },
		"tls-ca": func(c *Config) { c.TLSCA = "a" }, "gossip-keys": func(c *Config) { c.GossipKeys = secrets{"k"} },
	} {
		r := &reloader{}
		r.running.Store(&Config{})
		read := Config{}
		change(&read)
		if next, done := r.merge(&read); !slices.Equal(done.Restart, []string{name}) || !reflect.DeepEqual(*next, Config{}) {
			t.Errorf("%s: %+v", name, done)
		}
	}
}
