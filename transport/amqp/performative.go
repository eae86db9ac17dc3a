package amqp

// Code is the low byte of a descriptor of the amqp and amqp-security domains, AMQP 1.0 §1.3.2.
type Code uint8

// Descriptor codes of performatives, composite types and message sections.
const (
	CodeOpen        Code = 0x10
	CodeBegin       Code = 0x11
	CodeAttach      Code = 0x12
	CodeFlow        Code = 0x13
	CodeTransfer    Code = 0x14
	CodeDisposition Code = 0x15
	CodeDetach      Code = 0x16
	CodeEnd         Code = 0x17
	CodeClose       Code = 0x18

	CodeError Code = 0x1d

	CodeReceived Code = 0x23
	CodeAccepted Code = 0x24
	CodeRejected Code = 0x25
	CodeReleased Code = 0x26
	CodeModified Code = 0x27

	CodeSource      Code = 0x28
	CodeTarget      Code = 0x29
	CodeCoordinator Code = 0x30

	CodeDeclare            Code = 0x31
	CodeDischarge          Code = 0x32
	CodeDeclared           Code = 0x33
	CodeTransactionalState Code = 0x34

	CodeSASLMechanisms Code = 0x40
	CodeSASLInit       Code = 0x41
	CodeSASLChallenge  Code = 0x42
	CodeSASLResponse   Code = 0x43
	CodeSASLOutcome    Code = 0x44

	CodeHeader                Code = 0x70
	CodeDeliveryAnnotations   Code = 0x71
	CodeMessageAnnotations    Code = 0x72
	CodeProperties            Code = 0x73
	CodeApplicationProperties Code = 0x74
	CodeData                  Code = 0x75
	CodeAMQPSequence          Code = 0x76
	CodeAMQPValue             Code = 0x77
	CodeFooter                Code = 0x78
)

// Role is the side of a link that speaks, AMQP 1.0 §2.8.1.
type Role bool

// The two roles.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

// Settle modes of a sender and of a receiver, AMQP 1.0 §2.8.2 and §2.8.3.
const (
	SenderUnsettled uint8 = 0
	SenderSettled   uint8 = 1
	SenderMixed     uint8 = 2

	ReceiverFirst  uint8 = 0
	ReceiverSecond uint8 = 1
)

// Performative is one of *Open, *Begin, *Attach, *Flow, *Transfer, *Disposition, *Detach, *End,
// *Close and the five SASL frame bodies. The set is closed.
type Performative interface {
	// Code is the performative's descriptor.
	Code() Code
	appendTo(dst []byte) []byte
}

// Open is AMQP 1.0 §2.7.1.
type Open struct {
	ContainerID  string
	Hostname     Opt[string]
	MaxFrameSize Opt[uint32] // bytes; absent is 2³²−1
	ChannelMax   Opt[uint16] // absent is 65535
	// IdleTimeOut is in milliseconds: how long its sender lets the other side be silent.
	IdleTimeOut         Opt[uint32]
	OutgoingLocales     []Symbol
	IncomingLocales     []Symbol
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Raw // map
}

// Begin is AMQP 1.0 §2.7.2.
type Begin struct {
	RemoteChannel       Opt[uint16] // set in the answer to a begin
	NextOutgoingID      uint32
	IncomingWindow      uint32      // transfer frames
	OutgoingWindow      uint32      // transfer frames
	HandleMax           Opt[uint32] // absent is 2³²−1
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Raw // map
}

// Attach is AMQP 1.0 §2.7.3.
type Attach struct {
	Name                 string
	Handle               uint32
	Role                 Role
	SndSettleMode        Opt[uint8] // absent is SenderMixed
	RcvSettleMode        Opt[uint8] // absent is ReceiverFirst
	Source               *Source    // nil is null: on the server's side a refusal (G9)
	Target               *Target    // at most one of Target and Coordinator is set
	Coordinator          *Coordinator
	Unsettled            Raw // map
	IncompleteUnsettled  bool
	InitialDeliveryCount Opt[uint32]
	MaxMessageSize       Opt[uint64] // bytes; absent and 0 mean that its sender sets no limit
	OfferedCapabilities  []Symbol
	DesiredCapabilities  []Symbol
	Properties           Raw // map
}

// Flow is AMQP 1.0 §2.7.4. Without a Handle it speaks of the session only.
type Flow struct {
	NextIncomingID Opt[uint32]
	IncomingWindow uint32 // transfer frames
	NextOutgoingID uint32
	OutgoingWindow uint32 // transfer frames
	Handle         Opt[uint32]
	DeliveryCount  Opt[uint32]
	LinkCredit     Opt[uint32] // deliveries
	Available      Opt[uint32]
	Drain          bool
	Echo           bool
	Properties     Raw // map
}

// Transfer is AMQP 1.0 §2.7.5. The payload stands behind it in the frame.
type Transfer struct {
	Handle        uint32
	DeliveryID    Opt[uint32]
	DeliveryTag   []byte // a view; nil is null; at most MaxDeliveryTagBytes
	MessageFormat Opt[uint32]
	Settled       Opt[bool] // null on a continuation frame means: as the first frame said
	More          bool
	RcvSettleMode Opt[uint8]
	State         DeliveryState
	Resume        bool
	Aborted       bool
	Batchable     bool
}

// MaxDeliveryTagBytes is the longest delivery tag, AMQP 1.0 §2.8.7.
const MaxDeliveryTagBytes = 32

// Message formats of a transfer.
const (
	// FormatAMQP is one message as AMQP 1.0 §3.2 has it.
	FormatAMQP uint32 = 0
	// FormatBatch is a sequence of data sections, each of them one encoded message.
	FormatBatch uint32 = 0x80013700
)

// Disposition is AMQP 1.0 §2.7.6.
type Disposition struct {
	Role      Role
	First     uint32
	Last      Opt[uint32] // absent is First
	Settled   bool
	State     DeliveryState
	Batchable bool
}

// Detach is AMQP 1.0 §2.7.7.
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

// End is AMQP 1.0 §2.7.8.
type End struct{ Error *Error }

// Close is AMQP 1.0 §2.7.9.
type Close struct{ Error *Error }

// Code implements Performative.
func (*Open) Code() Code { return CodeOpen }

// Code implements Performative.
func (*Begin) Code() Code { return CodeBegin }

// Code implements Performative.
func (*Attach) Code() Code { return CodeAttach }

// Code implements Performative.
func (*Flow) Code() Code { return CodeFlow }

// Code implements Performative.
func (*Transfer) Code() Code { return CodeTransfer }

// Code implements Performative.
func (*Disposition) Code() Code { return CodeDisposition }

// Code implements Performative.
func (*Detach) Code() Code { return CodeDetach }

// Code implements Performative.
func (*End) Code() Code { return CodeEnd }

// Code implements Performative.
func (*Close) Code() Code { return CodeClose }
