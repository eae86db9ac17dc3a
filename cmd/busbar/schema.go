package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/rest"
)

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [settings|entities]",
		Short: "Print the JSON Schema of the configuration file, or of a file of entities, for editors",
		Long: "Print the JSON Schema (draft 2020-12) of the configuration file, or of a file of entities. An editor that reads it completes\n" +
			"names, explains them, and marks mistakes. docs/configuration.md shows the settings of VS Code.",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"settings", "entities"},
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := settingsSchema()
			if len(args) > 0 && args[0] == "entities" {
				schema = entities.Schema()
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			return e.Encode(schema)
		},
	}
}

// inFileOnly says what settings mean that are no flags. A point stands before the name of a part.
var inFileOnly = map[string]string{
	"root-key":           "the key of the policy RootManageSharedAccessKey; rather set BUSBAR_ROOT_KEY",
	"root-key-secondary": "another key of that policy, so that keys can be exchanged; rather set BUSBAR_ROOT_KEY_SECONDARY",
	"gossip-key":         "the key of gossip between nodes, 32 bytes in base64; rather set BUSBAR_GOSSIP_KEY",
	"gossip-keys":        "keys of gossip in place of one: the first encrypts, all are accepted",
	"gossip-keys-file":   "file of such keys, one in a line",
	"namespace":          "name of the namespace that clients are told",
	"max-lock-duration":  "longest lock that a queue or subscription may ask for, from 5s to 24h",
	"clock-skew":         "how long after its expiry, and before its beginning, a token still counts, up to 1h",

	"limits":                          "quotas; the same on every node, except those of one node",
	"limits.entities":                 "queues, topics and subscriptions",
	"limits.subscriptions":            "subscriptions of a topic",
	"limits.sql-filters":              "SQL filters of all subscriptions of a topic",
	"limits.correlation-filters":      "correlation filters of all subscriptions of a topic",
	"limits.rule-text":                "characters of a filter or action",
	"limits.transaction-messages":     "messages of a transaction",
	"limits.concurrent-receives":      "receives that wait at a queue or subscription, from all nodes",
	"limits.connections":              "sockets of clients of this node",
	"limits.connections-per-host":     "sockets of clients from one address",
	"limits.unauthenticated":          "sockets without a valid token yet",
	"limits.unauthenticated-per-host": "sockets without a valid token from one address",
	"limits.links":                    "links of one connection",
	"limits.operations":               "sockets of the operations port",
	"limits.client-bytes":             "bytes that this node holds in memory for its clients",
	"limits.transaction-bytes":        "bytes of those in open transactions",
	"limits.metric-entities":          "entities that have series of their own in /metrics",
	"limits.key-messages-per-second":  "messages that one key may send to this node each second; not set: no limit",
	"limits.key-messages-burst":       "messages that one key may send at once",
	"limits.key-bytes-per-second":     "bytes that one key may send to this node each second; not set: no limit",
	"limits.key-bytes-burst":          "bytes that one key may send at once",

	"policies":               "shared access policies of the namespace",
	"policies.name":          "name of the policy, SharedAccessKeyName of its clients",
	"policies.primary-key":   "key of the policy",
	"policies.secondary-key": "another key of the policy, so that keys can be exchanged",
	"policies.rights":        "Send, Listen, Manage",

	"issuers":               "OpenID Connect providers whose tokens are accepted",
	"issuers.name":          "URL of the issuer, as its tokens name it",
	"issuers.audiences":     "audiences that its tokens may be for",
	"issuers.keys":          "file or URL of its keys (default: what the issuer announces)",
	"issuers.grants":        "rights for the bearers of claims (default: the roles of Azure)",
	"issuers.grants.claim":  "name of the claim",
	"issuers.grants.value":  "value that the claim must have",
	"issuers.grants.entity": "entity that the rights are for (default: the namespace)",
	"issuers.grants.rights": "Send, Listen, Manage",

	"issuers.sign-in":                    "people sign in to the console at this issuer",
	"issuers.sign-in.client-id":          "name of this broker at the issuer",
	"issuers.sign-in.client-secret-file": "file with the secret of the client (default: a public client)",
	"issuers.sign-in.scopes":             "what the issuer is asked for (default: openid, profile)",
	"issuers.sign-in.token":              "which token is judged: access or id (default: access)",
	"issuers.sign-in.address":            "where browsers reach the operations port (default: what the browser called)",
	"issuers.sign-in.label":              "what the button says (default: the host of the issuer)",
}

// settingsSchema returns the JSON Schema of the configuration file. Names and forms are those of [Config], so nothing stands
// in one and not in the other. A text may be any plain value, as in YAML; truth values are true and false alone.
func settingsSchema() map[string]any {
	d := &describer{says: map[string]string{}, bounds: map[string]map[string]any{},
		patterns: map[string]string{"policies.rights": rightPattern, "issuers.grants.rights": rightPattern, "issuers.sign-in.token": "(access|id)?"},
		needs:    map[string][]string{"policies": {"name", "primary-key", "rights"}, "issuers": {"name"}, "issuers.sign-in": {"client-id"}}}
	for name, text := range inFileOnly {
		d.says[name] = text
	}
	for _, s := range settings() {
		d.says[s.name] = s.usage
	}
	c := defaults(false)
	for _, n := range c.spans() {
		d.bounds[n.name] = n.schema()
	}
	for _, n := range c.Limits.spans() {
		d.bounds["limits."+n.name] = n.schema()
	}
	for _, r := range c.Limits.rates() {
		bounds := r.schema()
		bounds["type"] = []string{"integer"} // a value of nothing is refused, as 0 is
		d.bounds["limits."+r.name] = bounds
	}
	for _, w := range append(c.words(), word{name: "tier", want: []string{string(rest.Premium), string(rest.Standard)}}) {
		d.bounds[w.name] = map[string]any{"enum": append([]any{nil}, anyOf(w.want)...)}
	}
	for _, a := range c.addresses() {
		d.patterns[a.name] = addressPattern
	}
	d.bounds["move-bytes-per-second"] = map[string]any{"anyOf": []any{
		map[string]any{"enum": []any{0, nil}}, map[string]any{"minimum": partition.LeastMoveRate}}}
	d.bounds["zone"] = map[string]any{"pattern": "^[!-~]*$", "maxLength": maxZone}
	d.bounds["gossip-keys"] = map[string]any{"maxItems": maxGossipKeys}
	root := d.object("", reflect.ValueOf(c))
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Settings of a Busbar node"
	root["description"] = "A file for busbar serve --config."
	root["properties"].(map[string]any)["$schema"] = map[string]any{"type": plainValue, "description": "the schema of this file, for editors"}
	return root
}

// schema is how the bounds are written in a schema.
func (n *span) schema() map[string]any {
	bounds := map[string]any{"minimum": n.least}
	if n.most != 0 {
		bounds["maximum"] = n.most
	}
	return bounds
}

func anyOf(words []string) []any {
	all := make([]any, 0, len(words))
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

// describer writes the types of a configuration as a schema.
type describer struct {
	says     map[string]string
	bounds   map[string]map[string]any
	patterns map[string]string // of texts, and of what a list has
	needs    map[string][]string
}

// plainValue is what YAML reads as a text.
var plainValue = []string{"string", "number", "boolean", "null"}

const (
	durationOfGo   = `^[-+]?(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	rightPattern   = `([sS][eE][nN][dD]|[lL][iI][sS][tT][eE][nN]|[mM][aA][nN][aA][gG][eE])`
	addressPattern = `([^:\[\], ]*|\[[^\[\], ]*\]):[^:\[\], ]*`
)

func (d *describer) object(prefix string, of reflect.Value) map[string]any {
	properties := map[string]any{}
	for i := range of.NumField() {
		name, ok := of.Type().Field(i).Tag.Lookup("yaml")
		if !ok {
			continue
		}
		schema := d.value(prefix+name, of.Field(i))
		schema["description"] = d.says[prefix+name]
		for k, v := range d.bounds[prefix+name] {
			schema[k] = v
		}
		properties[name] = schema
	}
	return map[string]any{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

func (d *describer) value(name string, v reflect.Value) map[string]any {
	switch is := v.Interface().(type) {
	case time.Duration:
		return map[string]any{"type": []string{"string", "null"}, "pattern": durationOfGo, "default": is.String()}
	case list, secrets:
		if pattern := d.patterns[name]; pattern != "" {
			return map[string]any{"type": []string{"array", "string", "null"}, "pattern": "^[ ,]*(" + pattern + "( *,[ ,]*" + pattern + ")*[ ,]*)?$",
				"items": map[string]any{"type": "string", "pattern": "^" + pattern + "$"}}
		}
		return map[string]any{"type": append([]string{"array"}, plainValue...), "items": map[string]any{"type": plainValue[:3]}}
	}
	switch v.Kind() {
	case reflect.Bool:
		return map[string]any{"type": []string{"boolean", "null"}, "default": v.Bool()}
	case reflect.Int:
		schema := map[string]any{"type": []string{"integer", "null"}}
		if v.Int() != 0 {
			schema["default"] = v.Int()
		}
		return schema
	case reflect.String:
		schema := map[string]any{"type": plainValue}
		if pattern := d.patterns[name]; pattern != "" {
			schema = map[string]any{"type": []string{"string", "null"}, "pattern": "^" + pattern + "$"}
		}
		if v.String() != "" {
			schema["default"] = v.String()
		}
		return schema
	case reflect.Struct:
		return d.object(name+".", v)
	case reflect.Pointer:
		object := d.object(name+".", reflect.Zero(v.Type().Elem()))
		if needs := d.needs[name]; needs != nil {
			object["required"] = needs
		}
		return object
	case reflect.Slice:
		item := d.object(name+".", reflect.Zero(v.Type().Elem()))
		item["type"] = "object"
		if needs := d.needs[name]; needs != nil {
			item["required"] = needs
		}
		return map[string]any{"type": []string{"array", "null"}, "items": item}
	}
	panic(fmt.Sprintf("setting %s has the type %s, which no schema is known for", name, v.Type()))
}
