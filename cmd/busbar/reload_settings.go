package main

import (
	"reflect"
	"slices"
	"strings"
)

// changesLive reports whether a reload puts a changed setting into effect. Everything else needs a restart.
func changesLive(name string, now, next *Config) bool {
	switch name {
	case "tls-cert", "tls-key":
		return now.TLSCert != "" && next.TLSCert != ""
	case "tls-ca": // TLS between nodes is not turned on or off while they talk
		return now.TLSCA != "" && next.TLSCA != ""
	case "gossip-key", "gossip-keys", "gossip-keys-file": // nor is encryption
		return now.encryptsGossip() && next.encryptsGossip()
	case "root-key", "root-key-secondary", "policies", "issuers", "clock-skew", "log-level", "move-bytes-per-second", "partitions":
		return true
	case "limits.links", "limits.concurrent-receives": // connections and replicas keep those that they began with
		return false
	}
	return strings.HasPrefix(name, "limits.")
}

// settingValues are the settings of a configuration by their names; limits stand as limits.NAME.
func settingValues(c *Config) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	var add func(prefix string, of reflect.Value)
	add = func(prefix string, of reflect.Value) {
		for i := range of.NumField() {
			name, ok := of.Type().Field(i).Tag.Lookup("yaml")
			if !ok {
				continue
			}
			if of.Field(i).Kind() == reflect.Struct {
				add(prefix+name+".", of.Field(i))
				continue
			}
			all[prefix+name] = of.Field(i)
		}
	}
	add("", reflect.ValueOf(c).Elem())
	return all
}

// settingNames are the names of all settings, in their order.
func settingNames() []string {
	var names []string
	for name := range settingValues(&Config{}) {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
