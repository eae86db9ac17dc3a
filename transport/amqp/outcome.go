package amqp

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
