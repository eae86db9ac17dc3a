package amqp

// FilterShared is a key of Source.Filter: a session without exclusion, docs/spec/amqp-protocol.md 6.1.
const FilterShared Symbol = "com.microsoft:non-exclusive-session-filter"

// The descriptor of the filter's value, a list of session id and session token.
const (
	sharedCode          = 0x000000137000000E
	sharedSymbol Symbol = "com.microsoft:non-exclusive-session-filter:list"
)

// SharedFilter is what a receiver asks for with FilterShared.
type SharedFilter struct {
	// SessionID is the session that is wanted; absent asks for the next one that is free.
	SessionID Opt[string]
	// Token is the session token of the session that is to be taken over.
	Token Opt[UUID]
}

// SharedFilter returns what the source's filter says about sessions without exclusion; ok is false if it
// says nothing, or null. The error wraps ErrDecode if the filter is not as described above.
func (s *Source) SharedFilter() (filter SharedFilter, ok bool, err error) {
	if s == nil {
		return filter, false, nil
	}
	v, ok := s.Filter.Get(string(FilterShared))
	if !ok || v.IsNull() {
		return filter, false, nil
	}
	if v[0] != tDescribed {
		return filter, false, badf("the filter is not a described list")
	}
	d, n, err := readDescriptor(v[1:])
	if err != nil {
		return filter, false, err
	}
	if d.number != sharedCode && string(d.symbol) != string(sharedSymbol) {
		return filter, false, badf("the filter has another descriptor than %s", sharedSymbol)
	}
	f, _, err := openList(v, 1+n, 0, newBudget(v))
	if err != nil {
		return filter, false, err
	}
	filter.SessionID = f.string()
	if token := f.raw(); f.err == nil && !token.IsNull() {
		id, isUUID := token.UUID()
		if !isUUID {
			return filter, false, badf("the session token is neither a uuid nor null")
		}
		filter.Token = Some(id)
	}
	return filter, true, f.end()
}

// EchoShared returns the source to answer an attach with FilterShared with. It is Source.Echo with the accepted
// session and its session token in the filter, under the client's descriptor.
func (s *Source) EchoShared(sessionID string, token UUID) *Source {
	filter := concreteFilter(s.Filter, FilterShared, func(b Raw) Raw {
		b, start := beginCompound(b)
		return endCompound(AppendUUID(AppendString(b, sessionID), token), start, tList8, 2)
	})
	echoed := *s.Echo(Opt[string]{})
	echoed.Encoded = pad(echoed.Encoded, CodeSource, sourceFields, func(i int, field Raw) Raw {
		if i == sourceFilter {
			return filter
		}
		return field
	})
	echoed.Filter = filter
	return &echoed
}
