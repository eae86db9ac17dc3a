package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// formatUsage describes --format. The verbs are like those of rpk topic consume, as far as both have them.
const formatUsage = `how to print a message: %v body, %k session, %n number, %i id, %l subject, %c content type, %d time, ` +
	`%D deliveries, %s state, %r reason of a dead letter, %t token of a lock, %h properties, %p{NAME} one of them, %j all as JSON; \n and \t`

// format is what --format says: texts and fields in turn.
type format struct{ parts []func(*shown) string }

// newFormat reads a format.
func newFormat(text string) (*format, error) {
	f := &format{}
	literal := func(s string) { f.parts = append(f.parts, func(*shown) string { return s }) }
	for i := 0; i < len(text); i++ {
		rest := text[i+1:]
		switch {
		case text[i] == '\\' && rest != "":
			i++
			c, known := map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '0': "\x00", '\\': "\\"}[rest[0]]
			if !known {
				return nil, exit.Usagef(`--format: \%c means nothing; known are \n, \t, \r, \0 and \\`, rest[0])
			}
			literal(c)
		case text[i] == '%' && strings.HasPrefix(rest, "p{"):
			name, _, closed := strings.Cut(rest[2:], "}")
			if !closed || name == "" {
				return nil, exit.Usagef("--format: %%p wants the name of a property: %%p{region}")
			}
			f.parts = append(f.parts, func(s *shown) string { return property(s.Properties[name]) })
			i += len("p{}") + len(name)
		case text[i] == '%' && rest != "":
			i++
			field, known := formatFields[rest[0]]
			if !known {
				return nil, exit.Usagef("--format: %%%c means nothing; busbar peek --help lists what does", rest[0])
			}
			f.parts = append(f.parts, field)
		case text[i] == '%' || text[i] == '\\':
			return nil, exit.Usagef("--format ends in %c: write it twice to print it", text[i])
		default:
			end := strings.IndexAny(text[i:], `\%`)
			if end < 0 {
				end = len(text) - i
			}
			literal(text[i : i+end])
			i += end - 1
		}
	}
	return f, nil
}

func (f *format) text(s *shown) string {
	var b strings.Builder
	for _, part := range f.parts {
		b.WriteString(part(s))
	}
	return b.String()
}

var formatFields = map[byte]func(*shown) string{
	'%': func(*shown) string { return "%" },
	'v': func(s *shown) string { return s.Body },
	'k': func(s *shown) string { return deref(s.SessionID) },
	'n': func(s *shown) string { return strconv.FormatInt(s.SequenceNumber, 10) },
	'i': func(s *shown) string { return s.MessageID },
	'l': func(s *shown) string { return s.Subject },
	'c': func(s *shown) string { return s.ContentType },
	'r': func(s *shown) string { return s.DeadReason },
	't': func(s *shown) string { return s.LockToken },
	's': func(s *shown) string { return s.State },
	'D': func(s *shown) string { return strconv.FormatUint(uint64(s.DeliveryCount), 10) },
	'd': func(s *shown) string {
		if s.EnqueuedAt == nil {
			return ""
		}
		return s.EnqueuedAt.Format(time.RFC3339Nano)
	},
	'h': func(s *shown) string {
		if len(s.Properties) == 0 {
			return "{}"
		}
		return asJSON(s.Properties)
	},
	'j': func(s *shown) string { return asJSON(s) },
}

// property is a property as a text.
func property(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// asJSON writes a value that was made for JSON.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
