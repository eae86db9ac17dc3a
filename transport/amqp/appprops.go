package amqp

// Property is one application property; Value is encoded, and nil is null. In an overlay Remove takes
// the property away.
type Property struct {
	Key    string
	Value  Raw
	Remove bool
}

// ReadProperties returns the pairs of a map with symbol or string keys, in order, as views. Such a map holds what a
// rejected, a modified or an update-disposition wants to set on a message. Null gives none. The error wraps ErrDecode
// for any other key.
func ReadProperties(r Raw) ([]Property, error) {
	m := ReadMap(r)
	var out []Property
	for {
		k, v, ok := m.Next()
		if !ok {
			return out, m.Err()
		}
		key, isText := k.Text()
		if !isText {
			return nil, badf("a property's key is neither a string nor a symbol")
		}
		out = append(out, Property{Key: key, Value: v})
	}
}

// MergeApplicationProperties writes an application-properties section from the pairs of an existing one (nil for
// none). The values of overlay stand in the place of those with the same key, and the rest of overlay behind them. Of
// two entries of overlay with one key the later counts. Keys become strings. Without any pair nothing is written. The
// error wraps ErrDecode for a section that is malformed; dst is then returned as it was.
func MergeApplicationProperties(dst, section []byte, overlay []Property) ([]byte, error) {
	if len(overlay) == 0 {
		return append(dst, section...), nil
	}
	var existing Raw
	if section != nil {
		var err error
		if existing, err = sectionValue(section, CodeApplicationProperties); err != nil {
			return dst, err
		}
	}
	// Both sides come from clients, so looking one up in the other must not cost their product.
	at := make(map[string]int, len(overlay))
	for i, p := range overlay {
		at[p.Key] = i
	}
	w := BeginMapSection(dst, CodeApplicationProperties)
	written := make([]bool, len(overlay))
	m := ReadMap(existing)
	for {
		k, v, ok := m.Next()
		if !ok {
			break
		}
		text, isText := k.text()
		i, replaced := at[string(text)]
		switch {
		case !isText:
			return dst, badf("an application property's key is no string")
		case !replaced:
			w.Raw(string(text), v)
		case !written[i]:
			if !overlay[i].Remove {
				w.Raw(overlay[i].Key, overlay[i].Value)
			}
			written[i] = true
		}
	}
	if err := m.Err(); err != nil {
		return dst, err
	}
	for i, p := range overlay {
		if at[p.Key] == i && !written[i] && !p.Remove {
			w.Raw(p.Key, p.Value)
		}
	}
	return w.End(), nil
}
