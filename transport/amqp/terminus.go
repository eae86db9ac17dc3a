package amqp

// Source is AMQP 1.0 §3.5.3. A decoded one keeps the client's bytes in Encoded; as long as Encoded
// is set, it is what goes out, and the other fields are for reading only.
type Source struct {
	// Encoded is the whole described value as it came, a view. See Echo.
	Encoded               Raw
	Address               Opt[string]
	Durable               uint32
	ExpiryPolicy          Symbol // "" is null, which means session-end
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw // map
	DistributionMode      Symbol
	Filter                Raw // map, see SessionFilter
	DefaultOutcome        Raw
	Outcomes              []Symbol
	Capabilities          []Symbol
}

// Target is AMQP 1.0 §3.5.4. Encoded is as in Source.
type Target struct {
	Encoded               Raw
	Address               Opt[string]
	Durable               uint32
	ExpiryPolicy          Symbol
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw // map
	Capabilities          []Symbol
}

// Coordinator is AMQP 1.0 §4.5.1, the target of a link that declares and discharges transactions.
// Encoded is as in Source.
type Coordinator struct {
	Encoded      Raw
	Capabilities []Symbol
}

// FilterSession is a key of Source.Filter.
const FilterSession Symbol = "com.microsoft:session-filter"

// DistributionCopy is the Source.DistributionMode that leaves messages where they are, AMQP 1.0 §3.5.7.
const DistributionCopy Symbol = "copy"

// SessionFilter is what a receiver asks for with FilterSession.
type SessionFilter struct {
	// SessionID is the session that is wanted; absent asks for the next one that is free. The empty
	// string is an id like any other (RUL-17).
	SessionID Opt[string]
	// Described tells that the client wrote the filter as a described value, and so must be
	// answered with one (G16).
	Described bool
}

// How many fields the termini have.
const (
	sourceFields      = 11
	targetFields      = 7
	coordinatorFields = 1
	// sourceFilter is the position of Source.Filter.
	sourceFilter = 7
)

// terminus returns a view of the described value that the next field is; nil if it is null.
func (f *fields) terminus() (c Code, encoded Raw) {
	encoded = f.raw()
	if encoded == nil {
		return 0, nil
	}
	c, _, err := readCode(encoded)
	if err != nil {
		f.err = err
		return 0, nil
	}
	return c, encoded
}

func (f *fields) source() *Source {
	c, encoded := f.terminus()
	if encoded == nil {
		return nil
	}
	// The bytes have been checked and charged once; reading them again needs a budget of its own.
	g, _, err := openFields(encoded, CodeSource, f.depth, newBudget(encoded))
	if err != nil || c != CodeSource {
		f.err = err
		return nil
	}
	s := &Source{
		Encoded:               encoded,
		Address:               g.string(),
		Durable:               g.uint32().Value,
		ExpiryPolicy:          g.symbol().Value,
		Timeout:               g.uint32().Value,
		Dynamic:               g.bool().Value,
		DynamicNodeProperties: g.rawMap(),
		DistributionMode:      g.symbol().Value,
		Filter:                g.rawMap(),
		DefaultOutcome:        g.raw(),
		Outcomes:              g.symbols(),
		Capabilities:          g.symbols(),
	}
	f.err = g.end()
	return s
}

func (f *fields) target() (*Target, *Coordinator) {
	c, encoded := f.terminus()
	if encoded == nil {
		return nil, nil
	}
	if c == CodeCoordinator {
		g, _, err := openFields(encoded, c, f.depth, newBudget(encoded))
		if err != nil {
			f.err = err
			return nil, nil
		}
		co := &Coordinator{Encoded: encoded, Capabilities: g.symbols()}
		f.err = g.end()
		return nil, co
	}
	g, _, err := openFields(encoded, CodeTarget, f.depth, newBudget(encoded))
	if err != nil {
		f.err = err
		return nil, nil
	}
	t := &Target{
		Encoded:               encoded,
		Address:               g.string(),
		Durable:               g.uint32().Value,
		ExpiryPolicy:          g.symbol().Value,
		Timeout:               g.uint32().Value,
		Dynamic:               g.bool().Value,
		DynamicNodeProperties: g.rawMap(),
		Capabilities:          g.symbols(),
	}
	f.err = g.end()
	return t, nil
}

func (s *Source) appendTo(dst []byte) []byte {
	if s == nil || s.Encoded != nil {
		return appendEncoded(dst, s)
	}
	dst, start := beginCompound(appendDescriptor(dst, CodeSource))
	dst = appendNode(dst, s.Address, s.Durable, s.ExpiryPolicy, s.Timeout, s.Dynamic)
	dst = appendRaw(dst, s.DynamicNodeProperties)
	dst = appendOptSymbol(dst, s.DistributionMode)
	dst = appendRaw(dst, s.Filter)
	dst = appendRaw(dst, s.DefaultOutcome)
	dst = appendSymbols(dst, s.Outcomes)
	dst = appendSymbols(dst, s.Capabilities)
	return endCompound(dst, start, tList8, sourceFields)
}

func appendEncoded(dst []byte, s *Source) []byte {
	if s == nil {
		return AppendNull(dst)
	}
	return append(dst, s.Encoded...)
}

func (t *Target) appendTo(dst []byte) []byte {
	if t == nil {
		return AppendNull(dst)
	}
	if t.Encoded != nil {
		return append(dst, t.Encoded...)
	}
	dst, start := beginCompound(appendDescriptor(dst, CodeTarget))
	dst = appendNode(dst, t.Address, t.Durable, t.ExpiryPolicy, t.Timeout, t.Dynamic)
	dst = appendRaw(dst, t.DynamicNodeProperties)
	dst = appendSymbols(dst, t.Capabilities)
	return endCompound(dst, start, tList8, targetFields)
}

func (c *Coordinator) appendTo(dst []byte) []byte {
	if c.Encoded != nil {
		return append(dst, c.Encoded...)
	}
	dst, start := beginCompound(appendDescriptor(dst, CodeCoordinator))
	return endCompound(appendSymbols(dst, c.Capabilities), start, tList8, coordinatorFields)
}

// appendNode writes the five fields with which source and target both begin.
func appendNode(
	dst []byte, address Opt[string], durable uint32, expiry Symbol, timeout uint32, dynamic bool,
) []byte {
	dst = appendOptString(dst, address)
	dst = AppendUint(dst, durable)
	dst = appendOptSymbol(dst, expiry)
	dst = AppendUint(dst, timeout)
	return AppendBool(dst, dynamic)
}

// appendOptSymbol writes a symbol, an empty one as null.
func appendOptSymbol(dst []byte, v Symbol) []byte {
	if v == "" {
		return AppendNull(dst)
	}
	return AppendSymbol(dst, v)
}

// Echo returns the source to answer an attach with. It has every field that the client sent, byte for byte (G8), and
// null for every field that it left out (G1). For a nil source all fields are null. If sessionID is set, it takes the
// place of what the session filter asks for, in the form that the client used (G16). The result holds copies.
func (s *Source) Echo(sessionID Opt[string]) *Source {
	var in Raw
	switch {
	case s == nil:
	case s.Encoded != nil:
		in = s.Encoded
	default:
		in = s.appendTo(nil)
	}
	out := pad(in, CodeSource, sourceFields, func(i int, field Raw) Raw {
		if i != sourceFilter || !sessionID.Set {
			return field
		}
		return concreteFilter(field, FilterSession, func(b Raw) Raw { return AppendString(b, sessionID.Value) })
	})
	echoed := Source{Encoded: out}
	if s != nil {
		echoed = *s
		echoed.Encoded = out
		echoed.Filter = s.Filter.Clone()
		if sessionID.Set {
			echoed.Filter = concreteFilter(s.Filter, FilterSession,
				func(b Raw) Raw { return AppendString(b, sessionID.Value) })
		}
		echoed.DynamicNodeProperties = s.DynamicNodeProperties.Clone()
		echoed.DefaultOutcome = s.DefaultOutcome.Clone()
	}
	return &echoed
}

// Echo returns the target to answer an attach with, as Source.Echo does.
func (t *Target) Echo() *Target {
	var in Raw
	echoed := Target{}
	if t != nil {
		echoed = *t
		echoed.DynamicNodeProperties = t.DynamicNodeProperties.Clone()
		if in = t.Encoded; in == nil {
			in = t.appendTo(nil)
		}
	}
	echoed.Encoded = pad(in, CodeTarget, targetFields, nil)
	return &echoed
}

// Echo returns the coordinator to answer an attach with, as Source.Echo does.
func (c *Coordinator) Echo() *Coordinator {
	var in Raw
	echoed := Coordinator{}
	if c != nil {
		echoed.Capabilities = c.Capabilities
		if in = c.Encoded; in == nil {
			in = c.appendTo(nil)
		}
	}
	echoed.Encoded = pad(in, CodeCoordinator, coordinatorFields, nil)
	return &echoed
}

// pad copies a described list that has been checked, field by field, and adds nulls up to count.
func pad(in Raw, c Code, count int, replace func(i int, field Raw) Raw) Raw {
	var f fields
	if in != nil {
		f, _, _ = openFields(in, c, 0, newBudget(in))
	}
	dst, start := beginCompound(appendDescriptor(make([]byte, 0, len(in)+longCompound+count), c))
	for i := range count {
		field := f.raw()
		if replace != nil {
			field = replace(i, field)
		}
		dst = appendRaw(dst, field)
	}
	return endCompound(dst, start, tList8, count)
}

// concreteFilter copies a filter map and puts what value appends where the filter of that name has its
// value.
func concreteFilter(filter Raw, name Symbol, value func(Raw) Raw) Raw {
	if filter == nil {
		return nil
	}
	w := BeginSymbolMap(make([]byte, 0, len(filter)+longCompound))
	m := ReadMap(filter)
	for {
		k, v, ok := m.Next()
		if !ok {
			return w.End()
		}
		if text, isText := k.text(); !isText || string(text) != string(name) {
			w.Pair(k, v)
			continue
		}
		var described Raw
		if v[0] == tDescribed {
			if _, n, err := readDescriptor(v[1:]); err == nil {
				described = append(described, v[:1+n]...)
			}
		}
		w.Pair(k, value(described))
	}
}

// SessionFilter returns what the source's filter says about sessions; ok is false if it says
// nothing. The error wraps ErrDecode if the filter is neither a string nor null.
func (s *Source) SessionFilter() (filter SessionFilter, ok bool, err error) {
	if s == nil {
		return SessionFilter{}, false, nil
	}
	v, ok := s.Filter.Get(string(FilterSession))
	if !ok {
		return SessionFilter{}, false, nil
	}
	if v[0] == tDescribed {
		filter.Described = true
		_, n, err := readDescriptor(v[1:])
		if err != nil {
			return SessionFilter{}, false, err
		}
		v = v[1+n:]
	}
	if v.IsNull() {
		return filter, true, nil
	}
	code, content, found := v.content()
	if !found || code&^wide != tString8 {
		return SessionFilter{}, false, badf("the session filter is neither a string nor null")
	}
	filter.SessionID = Some(string(content))
	return filter, true, nil
}
