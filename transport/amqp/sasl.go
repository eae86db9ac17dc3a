package amqp

// SASLMechanisms is AMQP 1.0 §5.3.3.1, the server's offer; it is written as an array even when
// it holds one name.
type SASLMechanisms struct{ Mechanisms []Symbol }

// SASLInit is AMQP 1.0 §5.3.3.2, the client's choice.
type SASLInit struct {
	Mechanism       Symbol
	InitialResponse []byte // a view; nil is null
	Hostname        Opt[string]
}

// SASLChallenge is AMQP 1.0 §5.3.3.3.
type SASLChallenge struct{ Challenge []byte }

// SASLResponse is AMQP 1.0 §5.3.3.4.
type SASLResponse struct{ Response []byte }

// SASLOutcome is AMQP 1.0 §5.3.3.6, the end of the dialogue.
type SASLOutcome struct {
	Outcome        SASLCode
	AdditionalData []byte // nil is null
}

// SASLCode is the result of a SASL dialogue.
type SASLCode uint8

// The results, AMQP 1.0 §5.3.3.7.
const (
	SASLOK         SASLCode = 0
	SASLAuth       SASLCode = 1 // wrong credentials
	SASLSystem     SASLCode = 2
	SASLSystemPerm SASLCode = 3 // a retry is useless
	SASLSystemTemp SASLCode = 4 // a retry may help

)

// Code implements Performative.
func (*SASLMechanisms) Code() Code { return CodeSASLMechanisms }

// Code implements Performative.
func (*SASLInit) Code() Code { return CodeSASLInit }

// Code implements Performative.
func (*SASLChallenge) Code() Code { return CodeSASLChallenge }

// Code implements Performative.
func (*SASLResponse) Code() Code { return CodeSASLResponse }

// Code implements Performative.
func (*SASLOutcome) Code() Code { return CodeSASLOutcome }
