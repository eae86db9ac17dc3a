package amqp

import "bytes"

// DeliveryState is one of Received, Accepted, Rejected, Released, Modified, Declared,
// *TransactionalState, or nil for null. The set is closed. Accepted, Released and Rejected cost no
// allocation.
type DeliveryState interface {
	// StateCode is the state's descriptor.
	StateCode() Code
	appendState(dst []byte) []byte
}

// Received is AMQP 1.0 §3.4.1.
type Received struct {
	SectionNumber uint32
	SectionOffset uint64 // bytes
}

// Accepted is AMQP 1.0 §3.4.2.
type Accepted struct{}

// Rejected is AMQP 1.0 §3.4.3; from a client it means dead-letter.
type Rejected struct{ Error *Error }

// Released is AMQP 1.0 §3.4.4.
type Released struct{}

// Modified is AMQP 1.0 §3.4.5; from a client it means defer when UndeliverableHere is true and
// abandon otherwise.
type Modified struct {
	DeliveryFailed     Opt[bool]
	UndeliverableHere  Opt[bool]
	MessageAnnotations Raw // map with symbol or string keys
}

// Declared is AMQP 1.0 §4.5.4.
type Declared struct{ TxnID []byte }

// TransactionalState is AMQP 1.0 §4.5.5.
type TransactionalState struct {
	TxnID   []byte // a view; at most MaxTxnIDBytes
	Outcome DeliveryState
}

// MaxTxnIDBytes is the longest transaction id, AMQP 1.0 §4.5.3.
const MaxTxnIDBytes = 32

// Declare is AMQP 1.0 §4.5.1, the body of a message to a coordinator.
type Declare struct{ GlobalID Raw }

// Discharge is AMQP 1.0 §4.5.2, the body of a message to a coordinator.
type Discharge struct {
	TxnID []byte
	Fail  bool
}

// StateCode implements DeliveryState.
func (Received) StateCode() Code { return CodeReceived }

// StateCode implements DeliveryState.
func (Accepted) StateCode() Code { return CodeAccepted }

// StateCode implements DeliveryState.
func (Rejected) StateCode() Code { return CodeRejected }

// StateCode implements DeliveryState.
func (Released) StateCode() Code { return CodeReleased }

// StateCode implements DeliveryState.
func (Modified) StateCode() Code { return CodeModified }

// StateCode implements DeliveryState.
func (Declared) StateCode() Code { return CodeDeclared }

// StateCode implements DeliveryState.
func (*TransactionalState) StateCode() Code { return CodeTransactionalState }

// state reads a delivery state field, nil if it is null.
func (f *fields) state() DeliveryState {
	if _, ok := f.next(); !ok {
		return nil
	}
	s, size, left, err := decodeState(f.b, f.depth, f.bud, true)
	if err != nil {
		f.err = err
		return nil
	}
	f.b, f.bud = f.b[size:], left
	return s
}

// decodeState reads the delivery state at the start of b and returns its size and what is left of
// the budget. Only at the top may it be transactional.
func decodeState(
	b []byte, depth int, bud budget, top bool,
) (s DeliveryState, size int, left budget, err error) {
	c, n, err := readCode(b)
	if err != nil {
		return nil, 0, bud, err
	}
	f, size, err := openList(b, n, depth, bud)
	if err != nil {
		return nil, 0, bud, err
	}
	switch c {
	case CodeAccepted:
		s = Accepted{}
	case CodeReleased:
		s = Released{}
	case CodeRejected:
		s = Rejected{Error: f.error()}
	case CodeModified:
		s = Modified{
			DeliveryFailed:     f.bool(),
			UndeliverableHere:  f.bool(),
			MessageAnnotations: f.rawMap(),
		}
	case CodeReceived:
		s = Received{
			SectionNumber: must(&f, f.uint32()),
			SectionOffset: must(&f, f.uint64()),
		}
	case CodeDeclared:
		s = Declared{TxnID: f.txnID()}
	case CodeTransactionalState:
		if !top {
			return nil, 0, bud, badf("a transactional state within a transactional state")
		}
		t := &TransactionalState{TxnID: f.txnID()}
		if _, ok := f.next(); ok {
			outcome, m, left, err := decodeState(f.b, f.depth, f.bud, false)
			if err != nil {
				return nil, 0, bud, err
			}
			t.Outcome, f.b, f.bud = outcome, f.b[m:], left
		}
		s = t
	default:
		return nil, 0, bud, badf("descriptor 0x%02x is no delivery state", uint8(c))
	}
	return s, size, f.bud, f.end()
}

// txnID reads a mandatory transaction id.
func (f *fields) txnID() []byte {
	v := f.limited(MaxTxnIDBytes)
	if v == nil {
		f.failf("is mandatory")
	}
	return v
}

// appendState writes a delivery state, nil as null.
func appendState(dst []byte, s DeliveryState) []byte {
	if s == nil {
		return AppendNull(dst)
	}
	return s.appendState(dst)
}

// appendState writes the short form, which is the only composite that is not padded (G1).
func (Accepted) appendState(dst []byte) []byte {
	return append(appendDescriptor(dst, CodeAccepted), tList0)
}

func (Released) appendState(dst []byte) []byte {
	return append(appendDescriptor(dst, CodeReleased), tList0)
}

func (s Rejected) appendState(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeRejected))
	return endCompound(s.Error.appendTo(dst), start, tList8, 1)
}

func (s Modified) appendState(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeModified))
	dst = appendOptBool(dst, s.DeliveryFailed)
	dst = appendOptBool(dst, s.UndeliverableHere)
	dst = appendRaw(dst, s.MessageAnnotations)
	return endCompound(dst, start, tList8, 3)
}

func (s Received) appendState(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeReceived))
	dst = AppendUint(dst, s.SectionNumber)
	dst = AppendUlong(dst, s.SectionOffset)
	return endCompound(dst, start, tList8, 2)
}

func (s Declared) appendState(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeDeclared))
	return endCompound(AppendBinary(dst, s.TxnID), start, tList8, 1)
}

func (s *TransactionalState) appendState(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeTransactionalState))
	dst = AppendBinary(dst, s.TxnID)
	dst = appendState(dst, s.Outcome)
	return endCompound(dst, start, tList8, 2)
}

// CloneState returns a copy that outlives the bytes of which parts of s are views.
func CloneState(s DeliveryState) DeliveryState {
	switch s := s.(type) {
	case Rejected:
		if s.Error == nil {
			return s
		}
		e := *s.Error
		e.Info = e.Info.Clone()
		return Rejected{Error: &e}
	case Modified:
		s.MessageAnnotations = s.MessageAnnotations.Clone()
		return s
	case Declared:
		return Declared{TxnID: bytes.Clone(s.TxnID)}
	case *TransactionalState:
		return &TransactionalState{TxnID: bytes.Clone(s.TxnID), Outcome: CloneState(s.Outcome)}
	}
	return s
}

// DecodeTransaction reads the body of a message to a coordinator, an amqp-value section as Sections.Body has it:
// *Declare or *Discharge. Their contents are views.
func DecodeTransaction(section []byte) (any, error) {
	value, err := sectionValue(section, CodeAMQPValue)
	if err != nil {
		return nil, err
	}
	c, n, err := readCode(value)
	if err != nil {
		return nil, err
	}
	f, size, err := openList(value, n, 0, newBudget(value))
	if err != nil {
		return nil, err
	}
	if size != len(value) {
		return nil, errCount
	}
	switch c {
	case CodeDeclare:
		d := &Declare{GlobalID: f.raw()}
		return d, f.end()
	case CodeDischarge:
		d := &Discharge{TxnID: f.txnID(), Fail: f.bool().Value}
		return d, f.end()
	}
	return nil, badf("descriptor 0x%02x is neither declare nor discharge", uint8(c))
}

// AppendDeclare writes an amqp-value section with a declare.
func AppendDeclare(dst []byte, d Declare) []byte {
	dst = appendDescriptor(appendDescriptor(dst, CodeAMQPValue), CodeDeclare)
	dst, start := beginCompound(dst)
	return endCompound(appendRaw(dst, d.GlobalID), start, tList8, 1)
}

// AppendDischarge writes an amqp-value section with a discharge.
func AppendDischarge(dst []byte, d Discharge) []byte {
	dst = appendDescriptor(appendDescriptor(dst, CodeAMQPValue), CodeDischarge)
	dst, start := beginCompound(dst)
	dst = AppendBinary(dst, d.TxnID)
	dst = AppendBool(dst, d.Fail)
	return endCompound(dst, start, tList8, 2)
}
