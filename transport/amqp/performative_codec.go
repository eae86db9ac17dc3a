package amqp

// PeekCode returns which performative a frame body begins with, so that its reader can decode it
// into a struct of its own.
func PeekCode(body []byte) (Code, error) {
	c, _, err := readCode(body)
	return c, err
}

// DecodePerformative decodes the performative of a frame body. The payload is what follows a
// transfer; behind any other performative nothing may follow. It allocates the struct: for
// transfer, disposition and flow there are PeekCode and their own Decode.
func DecodePerformative(body []byte) (p Performative, payload []byte, err error) {
	c, err := PeekCode(body)
	if err != nil {
		return nil, nil, err
	}
	var d interface {
		Performative
		Decode(body []byte) error
	}
	switch c {
	case CodeTransfer:
		t := new(Transfer)
		payload, err = t.Decode(body)
		if err != nil {
			return nil, nil, err
		}
		return t, payload, nil
	case CodeOpen:
		d = new(Open)
	case CodeBegin:
		d = new(Begin)
	case CodeAttach:
		d = new(Attach)
	case CodeFlow:
		d = new(Flow)
	case CodeDisposition:
		d = new(Disposition)
	case CodeDetach:
		d = new(Detach)
	case CodeEnd:
		d = new(End)
	case CodeClose:
		d = new(Close)
	case CodeSASLMechanisms:
		d = new(SASLMechanisms)
	case CodeSASLInit:
		d = new(SASLInit)
	case CodeSASLChallenge:
		d = new(SASLChallenge)
	case CodeSASLResponse:
		d = new(SASLResponse)
	case CodeSASLOutcome:
		d = new(SASLOutcome)
	default:
		return nil, nil, badf("descriptor 0x%02x is no performative", uint8(c))
	}
	if err := d.Decode(body); err != nil {
		return nil, nil, err
	}
	return d, nil, nil
}

// openPerformative starts to read a performative behind which nothing may follow.
func openPerformative(body []byte, c Code) (fields, error) {
	f, size, err := openFields(body, c, 0, newBudget(body))
	if err == nil && size != len(body) {
		err = badf("%d bytes behind performative 0x%02x", len(body)-size, uint8(c))
	}
	return f, err
}

// Decode reads an open. Its results in p are copies, except Properties.
func (p *Open) Decode(body []byte) error {
	f, err := openPerformative(body, CodeOpen)
	if err != nil {
		return err
	}
	*p = Open{
		ContainerID:         must(&f, f.string()),
		Hostname:            f.string(),
		MaxFrameSize:        f.uint32(),
		ChannelMax:          f.uint16(),
		IdleTimeOut:         f.uint32(),
		OutgoingLocales:     f.symbols(),
		IncomingLocales:     f.symbols(),
		OfferedCapabilities: f.symbols(),
		DesiredCapabilities: f.symbols(),
		Properties:          f.rawMap(),
	}
	return f.end()
}

func (p *Open) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeOpen))
	dst = AppendString(dst, p.ContainerID)
	dst = appendOptString(dst, p.Hostname)
	dst = appendOptUint(dst, p.MaxFrameSize)
	if p.ChannelMax.Set {
		dst = AppendUshort(dst, p.ChannelMax.Value)
	} else {
		dst = AppendNull(dst)
	}
	dst = appendOptUint(dst, p.IdleTimeOut)
	dst = appendSymbols(dst, p.OutgoingLocales)
	dst = appendSymbols(dst, p.IncomingLocales)
	dst = appendSymbols(dst, p.OfferedCapabilities)
	dst = appendSymbols(dst, p.DesiredCapabilities)
	dst = appendRaw(dst, p.Properties)
	return endCompound(dst, start, tList8, 10)
}

// Decode reads a begin. Properties is a view.
func (p *Begin) Decode(body []byte) error {
	f, err := openPerformative(body, CodeBegin)
	if err != nil {
		return err
	}
	*p = Begin{
		RemoteChannel:       f.uint16(),
		NextOutgoingID:      must(&f, f.uint32()),
		IncomingWindow:      must(&f, f.uint32()),
		OutgoingWindow:      must(&f, f.uint32()),
		HandleMax:           f.uint32(),
		OfferedCapabilities: f.symbols(),
		DesiredCapabilities: f.symbols(),
		Properties:          f.rawMap(),
	}
	return f.end()
}

func (p *Begin) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeBegin))
	if p.RemoteChannel.Set {
		dst = AppendUshort(dst, p.RemoteChannel.Value)
	} else {
		dst = AppendNull(dst)
	}
	dst = AppendUint(dst, p.NextOutgoingID)
	dst = AppendUint(dst, p.IncomingWindow)
	dst = AppendUint(dst, p.OutgoingWindow)
	dst = appendOptUint(dst, p.HandleMax)
	dst = appendSymbols(dst, p.OfferedCapabilities)
	dst = appendSymbols(dst, p.DesiredCapabilities)
	dst = appendRaw(dst, p.Properties)
	return endCompound(dst, start, tList8, 8)
}

// Decode reads an attach. Termini, Unsettled and Properties hold views.
func (p *Attach) Decode(body []byte) error {
	f, err := openPerformative(body, CodeAttach)
	if err != nil {
		return err
	}
	*p = Attach{
		Name:          must(&f, f.string()),
		Handle:        must(&f, f.uint32()),
		Role:          Role(must(&f, f.bool())),
		SndSettleMode: f.mode(SenderMixed),
		RcvSettleMode: f.mode(ReceiverSecond),
		Source:        f.source(),
	}
	p.Target, p.Coordinator = f.target()
	p.Unsettled = f.rawMap()
	p.IncompleteUnsettled = f.bool().Value
	// A sender must say its initial-delivery-count; some do not (G22), so absent is let through.
	p.InitialDeliveryCount = f.uint32()
	p.MaxMessageSize = f.uint64()
	p.OfferedCapabilities = f.symbols()
	p.DesiredCapabilities = f.symbols()
	p.Properties = f.rawMap()
	return f.end()
}

// mode reads a settle mode, of which the highest is given.
func (f *fields) mode(highest uint8) Opt[uint8] {
	v := f.uint8()
	if v.Value > highest {
		f.failf("settle mode %d does not exist", v.Value)
	}
	return v
}

func (p *Attach) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeAttach))
	dst = AppendString(dst, p.Name)
	dst = AppendUint(dst, p.Handle)
	dst = AppendBool(dst, bool(p.Role))
	dst = appendOptUbyte(dst, p.SndSettleMode)
	dst = appendOptUbyte(dst, p.RcvSettleMode)
	dst = p.Source.appendTo(dst)
	if p.Coordinator != nil {
		dst = p.Coordinator.appendTo(dst)
	} else {
		dst = p.Target.appendTo(dst)
	}
	dst = appendRaw(dst, p.Unsettled)
	dst = AppendBool(dst, p.IncompleteUnsettled)
	dst = appendOptUint(dst, p.InitialDeliveryCount)
	if p.MaxMessageSize.Set {
		dst = AppendUlong(dst, p.MaxMessageSize.Value)
	} else {
		dst = AppendNull(dst)
	}
	dst = appendSymbols(dst, p.OfferedCapabilities)
	dst = appendSymbols(dst, p.DesiredCapabilities)
	dst = appendRaw(dst, p.Properties)
	return endCompound(dst, start, tList8, 14)
}

// Decode reads a flow, without allocating. Properties is a view.
func (p *Flow) Decode(body []byte) error {
	f, err := openPerformative(body, CodeFlow)
	if err != nil {
		return err
	}
	*p = Flow{
		NextIncomingID: f.uint32(),
		IncomingWindow: must(&f, f.uint32()),
		NextOutgoingID: must(&f, f.uint32()),
		OutgoingWindow: must(&f, f.uint32()),
		Handle:         f.uint32(),
		DeliveryCount:  f.uint32(),
		LinkCredit:     f.uint32(),
		Available:      f.uint32(),
		Drain:          f.bool().Value,
		Echo:           f.bool().Value,
		Properties:     f.rawMap(),
	}
	return f.end()
}

func (p *Flow) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeFlow))
	dst = appendOptUint(dst, p.NextIncomingID)
	dst = AppendUint(dst, p.IncomingWindow)
	dst = AppendUint(dst, p.NextOutgoingID)
	dst = AppendUint(dst, p.OutgoingWindow)
	dst = appendOptUint(dst, p.Handle)
	dst = appendOptUint(dst, p.DeliveryCount)
	dst = appendOptUint(dst, p.LinkCredit)
	dst = appendOptUint(dst, p.Available)
	dst = AppendBool(dst, p.Drain)
	dst = AppendBool(dst, p.Echo)
	dst = appendRaw(dst, p.Properties)
	return endCompound(dst, start, tList8, 11)
}

// Decode reads a transfer, without allocating unless its state has more than an accepted or
// released, and returns what follows it. DeliveryTag, the payload and what State holds are views.
func (p *Transfer) Decode(body []byte) (payload []byte, err error) {
	f, size, err := openFields(body, CodeTransfer, 0, newBudget(body))
	if err != nil {
		return nil, err
	}
	*p = Transfer{
		Handle:        must(&f, f.uint32()),
		DeliveryID:    f.uint32(),
		DeliveryTag:   f.limited(MaxDeliveryTagBytes),
		MessageFormat: f.uint32(),
		Settled:       f.bool(),
		More:          f.bool().Value,
		RcvSettleMode: f.mode(ReceiverSecond),
		State:         f.state(),
		Resume:        f.bool().Value,
		Aborted:       f.bool().Value,
		Batchable:     f.bool().Value,
	}
	return body[size:], f.end()
}

// limited reads a binary of at most max bytes.
func (f *fields) limited(max int) []byte {
	v := f.binary()
	if len(v) > max {
		f.failf("has %d bytes, more than %d", len(v), max)
	}
	return v
}

func (p *Transfer) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeTransfer))
	dst = AppendUint(dst, p.Handle)
	dst = appendOptUint(dst, p.DeliveryID)
	dst = appendOptBinary(dst, p.DeliveryTag)
	dst = appendOptUint(dst, p.MessageFormat)
	dst = appendOptBool(dst, p.Settled)
	dst = AppendBool(dst, p.More)
	dst = appendOptUbyte(dst, p.RcvSettleMode)
	dst = appendState(dst, p.State)
	dst = AppendBool(dst, p.Resume)
	dst = AppendBool(dst, p.Aborted)
	dst = AppendBool(dst, p.Batchable)
	return endCompound(dst, start, tList8, 11)
}

// Decode reads a disposition, without allocating unless its state has more than an accepted or released. The contents
// of State are views.
func (p *Disposition) Decode(body []byte) error {
	f, err := openPerformative(body, CodeDisposition)
	if err != nil {
		return err
	}
	*p = Disposition{
		Role:      Role(must(&f, f.bool())),
		First:     must(&f, f.uint32()),
		Last:      f.uint32(),
		Settled:   f.bool().Value,
		State:     f.state(),
		Batchable: f.bool().Value,
	}
	return f.end()
}

func (p *Disposition) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeDisposition))
	dst = AppendBool(dst, bool(p.Role))
	dst = AppendUint(dst, p.First)
	dst = appendOptUint(dst, p.Last)
	dst = AppendBool(dst, p.Settled)
	dst = appendState(dst, p.State)
	dst = AppendBool(dst, p.Batchable)
	return endCompound(dst, start, tList8, 6)
}

// Decode reads a detach.
func (p *Detach) Decode(body []byte) error {
	f, err := openPerformative(body, CodeDetach)
	if err != nil {
		return err
	}
	*p = Detach{Handle: must(&f, f.uint32()), Closed: f.bool().Value, Error: f.error()}
	return f.end()
}

func (p *Detach) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeDetach))
	dst = AppendUint(dst, p.Handle)
	dst = AppendBool(dst, p.Closed)
	dst = p.Error.appendTo(dst)
	return endCompound(dst, start, tList8, 3)
}

// Decode reads an end.
func (p *End) Decode(body []byte) (err error) {
	p.Error, err = decodeErrorOnly(body, CodeEnd)
	return err
}

func (p *End) appendTo(dst []byte) []byte { return appendErrorOnly(dst, CodeEnd, p.Error) }

// Decode reads a close.
func (p *Close) Decode(body []byte) (err error) {
	p.Error, err = decodeErrorOnly(body, CodeClose)
	return err
}

func (p *Close) appendTo(dst []byte) []byte { return appendErrorOnly(dst, CodeClose, p.Error) }

func decodeErrorOnly(body []byte, c Code) (*Error, error) {
	f, err := openPerformative(body, c)
	if err != nil {
		return nil, err
	}
	e := f.error()
	return e, f.end()
}

func appendErrorOnly(dst []byte, c Code, e *Error) []byte {
	dst, start := beginCompound(appendDescriptor(dst, c))
	return endCompound(e.appendTo(dst), start, tList8, 1)
}

func appendOptString(dst []byte, v Opt[string]) []byte {
	if !v.Set {
		return AppendNull(dst)
	}
	return AppendString(dst, v.Value)
}

func appendOptUint(dst []byte, v Opt[uint32]) []byte {
	if !v.Set {
		return AppendNull(dst)
	}
	return AppendUint(dst, v.Value)
}

func appendOptUbyte(dst []byte, v Opt[uint8]) []byte {
	if !v.Set {
		return AppendNull(dst)
	}
	return AppendUbyte(dst, v.Value)
}

func appendOptBool(dst []byte, v Opt[bool]) []byte {
	if !v.Set {
		return AppendNull(dst)
	}
	return AppendBool(dst, v.Value)
}

func appendOptBinary(dst []byte, v []byte) []byte {
	if v == nil {
		return AppendNull(dst)
	}
	return AppendBinary(dst, v)
}

// appendSymbols writes a field that is declared "multiple" as an array, nil as null.
func appendSymbols(dst []byte, v []Symbol) []byte {
	if v == nil {
		return AppendNull(dst)
	}
	return AppendArray(dst, v)
}
