package entities

import (
	"strings"
	"unicode"
)

// schemaKey may stand in a file for an editor. Its value names the schema of the file.
const schemaKey = "$schema"

// node is a part of a JSON Schema.
type node = map[string]any

// Schema returns the JSON Schema of a file of entities, draft 2020-12. The names and forms are those by which [Read] reads,
// and keys have no case here either. The broker judges bounds that depend on the settings of a node, and rules in SQL.
func Schema() map[string]any {
	namespace := []key{
		{"Name", "Taken and ignored: the namespace is the broker itself.", ref("scalar")},
		{"Queues", "The queues.", listOf(ref(Queue))},
		{"Topics", "The topics, with their subscriptions.", listOf(ref(Topic))},
	}
	root := object(append([]key{
		{schemaKey, "The schema of this file, for editors.", ref("scalar")},
		{"UserConfig", "What the official emulator's Config.json has around the namespace.", ref("userConfig")},
	}, namespace...))
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Entities of a Busbar broker"
	root["description"] = "A file for busbar serve --entities and busbar entities apply: the official emulator's Config.json, or YAML of the same shape."
	root["type"] = []string{"object", "null"}
	root["if"] = need("UserConfig")
	root["then"] = node{"propertyNames": node{"pattern": "^(" + anyCase("UserConfig") + "|" + anyCase(schemaKey) + ")$"}}
	root["$defs"] = node{
		"userConfig": orNull(object([]key{
			{"Namespaces", "One namespace, which is the broker.", node{"type": []string{"array", "null"}, "items": ref("namespace"), "maxItems": 1}},
			{"Logging", "Taken and ignored: --log-level and --log-format set logs.", true},
		})),
		"namespace":        orNull(object(namespace)),
		Queue:              entitySchema(Queue),
		Topic:              entitySchema(Topic),
		Subscription:       entitySchema(Subscription),
		"Rule":             ruleSchema(),
		"correlation":      correlationSchema(),
		"value":            valueSchema(),
		"flag":             flagSchema(),
		"duration":         node{"type": []string{"string", "null"}, "pattern": durationPattern, "examples": []string{"PT30S", "PT1M", "PT1H", "P14D"}},
		"text":             node{"type": []string{"string", "number", "boolean", "null"}, "maxLength": 1024},
		"status":           node{"anyOf": []any{folded(statusNames, "null"), node{"const": ""}}},
		"scalar":           node{"type": []string{"string", "number", "boolean", "null"}},
		"name":             nameSchema(segmentPattern+"(/"+segmentPattern+")*/?", 260),
		"subscriptionName": nameSchema(segmentPattern, 50),
		"ruleName":         nameSchema(`[!$'()+,.0-9:;=A-Z\[\]^_`+"`"+`a-z{|}~-]+`, 50),
	}
	return root
}

const (
	segmentPattern  = `[A-Za-z0-9._~-]+`
	datePattern     = `([0-9]+Y([0-9]+M)?([0-9]+D)?|[0-9]+M([0-9]+D)?|[0-9]+D)`
	secondsPattern  = `[0-9]+(\.[0-9]+)?S`
	clockPattern    = `T([0-9]+H([0-9]+M)?(` + secondsPattern + `)?|[0-9]+M(` + secondsPattern + `)?|` + secondsPattern + `)`
	durationPattern = `^(P(` + datePattern + `(` + clockPattern + `)?|` + clockPattern + `))?$`
)

// key is a key of an object, what it says to people, and the schema of its value.
type key struct {
	name, says string
	value      any
}

// object is an object with these keys and no others. An editor offers keys as they are written here. Values are judged
// whatever the case of their keys, so each is judged once.
func object(keys []key) node {
	shown, judged := node{}, node{}
	for _, k := range keys {
		shown[k.name] = node{"description": k.says}
		judged["^"+anyCase(k.name)+"$"] = k.value
	}
	return node{"type": "object", "properties": shown, "patternProperties": judged, "additionalProperties": false}
}

func orNull(schema node) node {
	schema["type"] = []string{"object", "null"}
	return schema
}

func listOf(item node) node { return node{"type": []string{"array", "null"}, "items": item} }

func ref(name string) node { return node{"$ref": "#/$defs/" + name} }

// anyCase is a pattern of a name in any case.
func anyCase(name string) string {
	var out strings.Builder
	for _, r := range name {
		switch {
		case unicode.IsLetter(r):
			out.WriteString("[" + string(unicode.ToLower(r)) + string(unicode.ToUpper(r)) + "]")
		case r == '$':
			out.WriteString("[$]")
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// need asks for a key. The first way is what an editor tells of, the second takes the key in any case.
func need(name string) node {
	return node{"anyOf": []any{
		node{"required": []string{name}},
		node{"not": node{"propertyNames": node{"not": node{"pattern": "^" + anyCase(name) + "$"}}}},
	}}
}

// folded takes one of these texts in any case, and any value of the other types. An editor offers the texts as they are
// written here.
func folded(texts []string, types ...string) node {
	patterns := make([]string, 0, len(texts))
	for _, text := range texts {
		patterns = append(patterns, anyCase(text))
	}
	return node{"anyOf": []any{
		node{"enum": texts},
		node{"type": append(types, "string"), "pattern": "^(" + strings.Join(patterns, "|") + ")$"},
	}}
}

func nameSchema(pattern string, most int) node {
	return node{"type": []string{"string", "number", "boolean"}, "maxLength": most, "pattern": "^" + pattern + "$",
		"not": node{"type": "string", "pattern": `(^|/)[.]{1,2}(/|$)`}}
}

// flagSchema takes what the broker takes for true and false. An editor offers the truth values.
func flagSchema() node {
	return node{"type": []string{"boolean", "string", "integer", "null"}, "minimum": 0, "maximum": 1,
		"pattern": "^(" + anyCase("true") + "|" + anyCase("false") + "|[01])?$"}
}

func (p *named) schema() node {
	switch p.kind {
	case aNumber:
		return node{"type": []string{"integer", "string", "null"}, "minimum": p.least, "maximum": p.most, "pattern": "^[0-9]*$"}
	case aDuration:
		return ref("duration")
	case aText, anAddress:
		return ref("text")
	case aStatus:
		return ref("status")
	}
	return ref("flag")
}

func entitySchema(kind string) node {
	var properties []key
	for _, p := range append(propertiesOf(kind), optionProperties...) {
		properties = append(properties, key{p.name, p.says, p.schema()})
	}
	name := "name"
	if kind == Subscription {
		name = "subscriptionName"
	}
	lower := strings.ToLower(kind)
	keys := []key{
		{"Name", "The name of the " + lower + ".", ref(name)},
		{"Properties", "The properties of the " + lower + ". One that is not named has the default of the service.", orNull(object(properties))},
	}
	switch kind {
	case Topic:
		keys = append(keys, key{"Subscriptions", "The subscriptions of the topic.", listOf(ref(Subscription))})
	case Subscription:
		keys = append(keys, key{"Rules", "The rules of the subscription. Without any it has $Default, which takes every message.", listOf(ref("Rule"))})
	}
	entity := object(keys)
	entity["allOf"] = []any{need("Name")}
	return entity
}

func ruleSchema() node {
	expression := func(says string) node { return orNull(object([]key{{"SqlExpression", says, ref("scalar")}})) }
	properties := object([]key{
		{"FilterType", "Which filter the rule has.", folded(filterTypes, "boolean")},
		{"SqlFilter", "The filter of the type Sql.", expression("A condition, such as priority > 3 AND region = 'eu'.")},
		{"CorrelationFilter", "The filter of the type Correlation: all that it names must be equal.", ref("correlation")},
		{"Action", "What the rule changes in messages that its filter takes.", expression("Assignments, such as SET routed = TRUE.")},
	})
	properties["allOf"] = []any{need("FilterType"),
		node{"if": chosen("Sql"), "then": node{"allOf": []any{need("SqlFilter"),
			node{"patternProperties": node{"^" + anyCase("SqlFilter") + "$": node{"type": "object", "allOf": []any{need("SqlExpression")},
				"patternProperties": node{"^" + anyCase("SqlExpression") + "$": node{"type": []string{"string", "number", "boolean"}, "minLength": 1}}}}}}}},
		node{"if": chosen("Correlation"), "then": node{"allOf": []any{need("CorrelationFilter"),
			node{"patternProperties": node{"^" + anyCase("CorrelationFilter") + "$": node{"type": "object", "minProperties": 1}}}}}},
	}
	rule := object([]key{{"Name", "The name of the rule.", ref("ruleName")}, {"Properties", "The filter and the action of the rule.", properties}})
	rule["allOf"] = []any{need("Name"), need("Properties")}
	return rule
}

// chosen is that the type of the filter is this one.
func chosen(filter string) node {
	return node{"allOf": []any{need("FilterType"),
		node{"patternProperties": node{"^" + anyCase("FilterType") + "$": node{"type": "string", "pattern": "^" + anyCase(filter) + "$"}}}}}
}

func correlationSchema() node {
	keys := []key{{"Properties", "Application properties and the values that they must have.", node{"type": []string{"object", "null"}, "additionalProperties": ref("value")}}}
	for _, name := range correlationNames {
		keys = append(keys, key{name, "The value that the message must have.", ref("scalar")})
	}
	return orNull(object(keys))
}

func valueSchema() node {
	typed := object([]key{{"Type", "The type of the value.", folded(valueTypes)}, {"Value", "The value.", ref("scalar")}})
	typed["allOf"] = []any{need("Type"), need("Value")}
	return node{"anyOf": []any{ref("scalar"), typed}}
}
