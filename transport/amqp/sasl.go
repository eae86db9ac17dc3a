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

// Decode reads the offer.
func (p *SASLMechanisms) Decode(body []byte) error {
	f, err := openPerformative(body, CodeSASLMechanisms)
	if err != nil {
		return err
	}
	p.Mechanisms = f.symbols()
	if p.Mechanisms == nil {
		f.failf("is mandatory")
	}
	return f.end()
}

func (p *SASLMechanisms) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeSASLMechanisms))
	return endCompound(AppendArray(dst, p.Mechanisms), start, tList8, 1)
}

// Decode reads the choice.
func (p *SASLInit) Decode(body []byte) error {
	f, err := openPerformative(body, CodeSASLInit)
	if err != nil {
		return err
	}
	*p = SASLInit{
		Mechanism:       must(&f, f.symbol()),
		InitialResponse: f.binary(),
		Hostname:        f.string(),
	}
	return f.end()
}

func (p *SASLInit) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeSASLInit))
	dst = AppendSymbol(dst, p.Mechanism)
	dst = appendOptBinary(dst, p.InitialResponse)
	dst = appendOptString(dst, p.Hostname)
	return endCompound(dst, start, tList8, 3)
}

// Decode reads a challenge.
func (p *SASLChallenge) Decode(body []byte) (err error) {
	p.Challenge, err = decodeBinaryOnly(body, CodeSASLChallenge)
	return err
}

func (p *SASLChallenge) appendTo(dst []byte) []byte {
	return appendBinaryOnly(dst, CodeSASLChallenge, p.Challenge)
}

// Decode reads a response.
func (p *SASLResponse) Decode(body []byte) (err error) {
	p.Response, err = decodeBinaryOnly(body, CodeSASLResponse)
	return err
}

func (p *SASLResponse) appendTo(dst []byte) []byte {
	return appendBinaryOnly(dst, CodeSASLResponse, p.Response)
}

func decodeBinaryOnly(body []byte, c Code) ([]byte, error) {
	f, err := openPerformative(body, c)
	if err != nil {
		return nil, err
	}
	v := f.binary()
	if v == nil {
		f.failf("is mandatory")
	}
	return v, f.end()
}

func appendBinaryOnly(dst []byte, c Code, v []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, c))
	return endCompound(AppendBinary(dst, v), start, tList8, 1)
}

// Decode reads the result.
func (p *SASLOutcome) Decode(body []byte) error {
	f, err := openPerformative(body, CodeSASLOutcome)
	if err != nil {
		return err
	}
	*p = SASLOutcome{Outcome: SASLCode(must(&f, f.uint8())), AdditionalData: f.binary()}
	if p.Outcome > SASLSystemTemp {
		f.failf("outcome %d does not exist", p.Outcome)
	}
	return f.end()
}

func (p *SASLOutcome) appendTo(dst []byte) []byte {
	dst, start := beginCompound(appendDescriptor(dst, CodeSASLOutcome))
	dst = AppendUbyte(dst, uint8(p.Outcome))
	dst = appendOptBinary(dst, p.AdditionalData)
	return endCompound(dst, start, tList8, 2)
}
