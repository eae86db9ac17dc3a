package rest

import (
	"cmp"
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// schemaSpace is the XML namespace of the types of values; the service binds those that .NET added to
// another one.
const (
	schemaSpace        = "http://www.w3.org/2001/XMLSchema"
	serializationSpace = "http://schemas.microsoft.com/2003/10/Serialization/"
)

// typeUint is the type of a value that came as an AMQP uint. It is shown as an integer: the JavaScript client
// writes every positive integer so, and reads no unsignedInt.
const typeUint = "uint"

// shortestDuration is the smallest duration of 64-bit ticks, TimeSpan.MinValue of the .NET clients. Its positive
// counterpart does not exist.
const shortestDuration = "-P10675199DT2H48M5.4775808S"

const emptyAction = "EmptyRuleAction"

// parseRule reads a RuleDescription or DefaultRuleDescription and compiles it. Elements are found by
// their local names: clients bind prefixes in many ways.
func parseRule(e *element) (r fsm.Rule, err error) {
	r.Source = rule.Default()
	for _, c := range e.children {
		switch {
		case c.null:
		case c.name.Local == "Name":
			r.Name = strings.TrimSpace(c.text)
		case c.name.Local == "Filter":
			err = parseFilter(c, &r.Source)
			r.Preprocessing[0] = preprocessing(c)
		case c.name.Local == "Action":
			err = parseAction(c, &r.Source)
			r.Preprocessing[1] = preprocessing(c)
		}
		if err != nil {
			return r, err
		}
	}
	if _, err := r.Source.Compile(); rule.TooLong(err) {
		return r, exhausted(err.Error())
	} else if err != nil {
		return r, badRequest("The rule is not valid: %s.", strings.TrimSuffix(err.Error(), "."))
	}
	return r, nil
}

// preprocessing is what a filter or action says of RequiresPreprocessing: "true", "false", or "" if
// nothing that can be read. The service shows it again and does nothing by it.
func preprocessing(e *element) string {
	c := e.local("RequiresPreprocessing")
	if c == nil || c.null {
		return ""
	}
	b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(c.text)))
	if err != nil {
		return ""
	}
	return strconv.FormatBool(b)
}

// parseFilter: the type says what the filter is, and what it has shows what it is without one.
func parseFilter(e *element, s *rule.Source) (err error) {
	expression, parameters := e.local("SqlExpression"), e.local("Parameters")
	kind := e.kind
	if kind == "" {
		kind = "CorrelationFilter"
		if expression != nil {
			kind = "SqlFilter"
		}
	}
	switch kind {
	case "TrueFilter":
		s.Kind = rule.TrueFilter
	case "FalseFilter":
		s.Kind = rule.FalseFilter
	case "SqlFilter":
		s.Kind = rule.SQLFilter
		if expression != nil {
			s.Expression = expression.text
		}
		s.Parameters, err = parseProperties(parameters)
	case "CorrelationFilter":
		s.Kind = rule.CorrelationFilter
		s.Correlation = new(rule.Correlation)
		for _, f := range correlationFields(s.Correlation) {
			if c := e.local(f.name); c != nil && !c.null && c.text != "" {
				*f.at = &c.text
			}
		}
		s.Correlation.Properties, err = parseProperties(e.local("Properties"))
	default:
		return badProperty("Filter", kind, "The type of the filter is unknown.")
	}
	return err
}

// correlationField is one of the fixed fields of a correlation filter.
type correlationField struct {
	name string
	at   **string
}

func correlationFields(c *rule.Correlation) []correlationField {
	return []correlationField{
		{"CorrelationId", &c.CorrelationID},
		{"MessageId", &c.MessageID},
		{"To", &c.To},
		{"ReplyTo", &c.ReplyTo},
		{"Label", &c.Label},
		{"SessionId", &c.SessionID},
		{"ReplyToSessionId", &c.ReplyToSessionID},
		{"ContentType", &c.ContentType},
	}
}

func parseAction(e *element, s *rule.Source) (err error) {
	expression := e.local("SqlExpression")
	switch {
	case e.kind == emptyAction, e.kind == "" && expression == nil:
		return nil
	case e.kind != "SqlRuleAction" && e.kind != "":
		return badProperty("Action", e.kind, "The type of the action is unknown.")
	case expression == nil || strings.TrimSpace(expression.text) == "":
		return badProperty("Action", "", "The action has no expression.")
	}
	s.Action = expression.text
	s.ActionParameters, err = parseProperties(e.local("Parameters"))
	return err
}

// parseProperties reads a list of keys and values, nil if there is none.
func parseProperties(e *element) ([]rule.Property, error) {
	if e == nil || e.null {
		return nil, nil
	}
	var all []rule.Property
	for _, pair := range e.children {
		key, value := pair.local("Key"), pair.local("Value")
		if pair.name.Local != "KeyValueOfstringanyType" || key == nil || value == nil {
			return nil, badRequest("A list of properties holds something that is no key with a value.")
		}
		p := rule.Property{Name: key.text, Type: value.kind}
		var ok bool
		if p.Value, ok = parseValue(value); !ok {
			return nil, badProperty(clip(key.text), value.text,
				"The value is not of the type %s, or the type is not supported.", clip(value.kind))
		}
		switch {
		case p.Value.Kind() == rule.DateTime && !hasZone(value.text):
			p.Type = zoneless
		case p.Type == typeOf(p.Value):
			p.Type = "" // the one it has by itself
		}
		all = append(all, p)
	}
	return all, nil
}

// zoneless is the type of a dateTime that was written without a zone. It counts as UTC, and is written
// without one again: Python tells times with a zone from times without and compares neither to the other.
const zoneless = "dateTime without zone"

// hasZone reports whether the text of a dateTime ends in Z or an offset.
func hasZone(text string) bool {
	text = strings.TrimSpace(text)
	_, clock, _ := strings.Cut(text, ":") // an offset has its sign behind the hour
	return strings.HasSuffix(text, "Z") || strings.ContainsAny(clock, "+-")
}

// parseValue reads a value of an XML Schema type. Go writes its 64-bit integers as int.
func parseValue(e *element) (rule.Value, bool) {
	text := strings.TrimSpace(e.text)
	switch e.kind {
	case "string", "char", "anyURI", "":
		return rule.OfString(e.text), !e.null
	case "int", "long", "short", "byte":
		bits := map[string]int{"short": 16, "byte": 8}[e.kind]
		n, err := strconv.ParseInt(text, 10, cmp.Or(bits, 64))
		return rule.OfInt(n), err == nil
	case "unsignedByte", "unsignedShort", "unsignedInt", "unsignedLong":
		bits := map[string]int{"unsignedByte": 8, "unsignedShort": 16, "unsignedInt": 32}[e.kind]
		n, err := strconv.ParseUint(text, 10, cmp.Or(bits, 64))
		return rule.OfUint(n), err == nil
	case "double", "float":
		bits := map[string]int{"float": 32}[e.kind]
		f, err := strconv.ParseFloat(text, cmp.Or(bits, 64))
		return rule.OfFloat(f), err == nil
	case "decimal":
		return rule.ParseDecimal(text)
	case "base64Binary":
		raw, err := base64.StdEncoding.DecodeString(text)
		return rule.OfBytes(raw), err == nil
	case "boolean":
		b, err := strconv.ParseBool(strings.ToLower(text))
		return rule.OfBool(b), err == nil
	case "dateTime":
		for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
			"2006-01-02 15:04:05Z07:00"} {
			if at, err := time.Parse(layout, text); err == nil {
				return rule.OfDateTime(at.Unix()*10_000_000 + int64(at.Nanosecond()/100)), true
			}
		}
	case "duration":
		if text == shortestDuration {
			return rule.OfDuration(math.MinInt64), true
		}
		positive, negative := strings.CutPrefix(text, "-")
		d, err := parseTicks(positive)
		if negative {
			d = -d
		}
		return rule.OfDuration(d), err == nil
	case "guid":
		return rule.ParseGuid(text)
	}
	return rule.Value{}, false
}

// typeOf is the type by which a value is written that no client has given a type. Go and JavaScript
// cannot read long, so integers are written as int as long as they fit.
func typeOf(v rule.Value) string {
	switch v.Kind() {
	case rule.Bool:
		return "boolean"
	case rule.Int:
		if n := v.Int(); n != int64(int32(n)) {
			return "long"
		}
		return "int"
	case rule.Uint:
		return "unsignedLong"
	case rule.Float:
		return "double"
	case rule.Decimal:
		return "decimal"
	case rule.Binary:
		return "base64Binary"
	case rule.DateTime:
		return "dateTime"
	case rule.Duration:
		return "duration"
	case rule.Guid:
		return "guid"
	}
	return "string"
}

// valueText writes a value of an XML Schema type.
func valueText(v rule.Value, kind string) string {
	switch v.Kind() {
	case rule.Bool:
		return strconv.FormatBool(v.Bool())
	case rule.Int:
		return strconv.FormatInt(v.Int(), 10)
	case rule.Uint:
		return strconv.FormatUint(v.Uint(), 10)
	case rule.Float:
		return floatText(v.Float(), kind)
	case rule.Decimal:
		text, _ := v.DecimalText()
		return text
	case rule.Binary:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	case rule.DateTime:
		ticks := v.Ticks()
		at := time.Unix(ticks/10_000_000, ticks%10_000_000*100)
		return at.UTC().Format(exactTime)
	case rule.Duration:
		if v.Ticks() == math.MinInt64 {
			return shortestDuration
		}
		return formatTicks(v.Ticks())
	case rule.String:
		return v.Text()
	case rule.Guid:
		_, text, _ := strings.Cut(v.String(), ":")
		return text
	}
	return v.Raw()
}

// floatText writes a float or double; XML Schema has words of its own for what is no finite number.
func floatText(f float64, kind string) string {
	switch {
	case math.IsInf(f, 1):
		return "INF"
	case math.IsInf(f, -1):
		return "-INF"
	case math.IsNaN(f):
		return "NaN"
	case kind == "float":
		return strconv.FormatFloat(f, 'g', -1, 32)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// writeRule writes every element: Go fails without filter or action, JavaScript on other prefixes.
func writeRule(p *page, r *fsm.Rule) {
	p.raw(`<RuleDescription xmlns="` + connectSpace + `" xmlns:i="` + instanceSpace + `">`)
	s := &r.Source
	switch s.Kind {
	case rule.TrueFilter:
		p.raw(`<Filter i:type="TrueFilter">`)
		writeExpression(p, rule.TrueExpression, nil, r.Preprocessing[0])
	case rule.FalseFilter:
		p.raw(`<Filter i:type="FalseFilter">`)
		writeExpression(p, rule.FalseExpression, nil, r.Preprocessing[0])
	case rule.SQLFilter:
		p.raw(`<Filter i:type="SqlFilter">`)
		writeExpression(p, s.Expression, s.Parameters, r.Preprocessing[0])
	case rule.CorrelationFilter:
		p.raw(`<Filter i:type="CorrelationFilter">`)
		writeCorrelation(p, s.Correlation)
	}
	p.raw("</Filter>")
	if s.Action == "" {
		p.raw(`<Action i:type="` + emptyAction + `"/>`)
	} else {
		p.raw(`<Action i:type="SqlRuleAction">`)
		writeExpression(p, s.Action, s.ActionParameters, r.Preprocessing[1])
		p.raw("</Action>")
	}
	p.tag("CreatedAt", wallTime(r.CreatedAt, exactTime))
	p.tag("Name", r.Name)
	p.raw("</RuleDescription>")
}

func writeExpression(p *page, text string, parameters []rule.Property, preprocessing string) {
	p.tag("SqlExpression", text)
	p.tag("CompatibilityLevel", "20")
	writeProperties(p, "Parameters", parameters)
	if preprocessing != "" {
		p.tag("RequiresPreprocessing", preprocessing)
	}
}

func writeCorrelation(p *page, c *rule.Correlation) {
	for _, f := range correlationFields(c) {
		if *f.at != nil {
			p.tag(f.name, **f.at)
		}
	}
	writeProperties(p, "Properties", c.Properties)
}

func writeProperties(p *page, list string, all []rule.Property) {
	if len(all) == 0 {
		return // the service leaves an empty list out
	}
	p.raw("<" + list + ">")
	for _, property := range all {
		kind, space := property.Type, schemaSpace
		if kind == "" || kind == typeUint {
			kind = typeOf(property.Value)
		}
		if kind == "duration" || kind == "guid" || kind == "char" {
			space = serializationSpace
		}
		text := valueText(property.Value, kind)
		if kind == zoneless {
			kind, text = typeOf(property.Value), strings.TrimSuffix(text, "Z")
		}
		p.raw("<KeyValueOfstringanyType>")
		p.tag("Key", property.Name)
		p.raw(`<Value i:type="d6p1:`)
		escape(&p.Buffer, kind)
		p.raw(`" xmlns:d6p1="` + space + `">`)
		escape(&p.Buffer, text)
		p.raw("</Value></KeyValueOfstringanyType>")
	}
	p.raw("</" + list + ">")
}
