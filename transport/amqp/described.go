package amqp

import "encoding/binary"

// appendDescriptor writes the descriptor of a type of AMQP's own as a small ulong (G2).
func appendDescriptor(dst []byte, c Code) []byte {
	return append(dst, tDescribed, tSmallUlong, byte(c))
}

// descriptor is the descriptor of a described value. It is a name if symbol is not nil, any other primitive if other
// is not nil, and otherwise a number.
type descriptor struct {
	number uint64
	symbol []byte
	other  Raw
}

// readDescriptor reads the descriptor behind the constructor 0x00 and returns its size. All but
// ulong and symbol are reserved, not invalid, AMQP 1.0 §1.3.2, and one client library describes by
// strings; so any primitive passes as data, but nothing of AMQP's own is described by it.
func readDescriptor(b []byte) (descriptor, int, error) {
	if len(b) == 0 {
		return descriptor{}, 0, errShort
	}
	code := b[0]
	if code == tSmallUlong && len(b) > 1 { // nearly always
		return descriptor{number: uint64(b[1])}, 2, nil
	}
	if code == tDescribed || code == tList0 || code >= tList8 {
		return descriptor{}, 0, badf("constructor 0x%02x cannot describe", code)
	}
	from, to, err := extent(code, b[1:])
	if err != nil {
		return descriptor{}, 0, err
	}
	content := b[1+from : 1+to]
	if err := checkText(code, content); err != nil {
		return descriptor{}, 0, err
	}
	switch code {
	case tUlong0:
		return descriptor{}, 1, nil
	case tUlong:
		return descriptor{number: binary.BigEndian.Uint64(content)}, 1 + to, nil
	case tSymbol8, tSymbol32:
		return descriptor{symbol: content}, 1 + to, nil
	}
	return descriptor{other: Raw(b[:1+to])}, 1 + to, nil
}

// readCode reads the constructor 0x00 and a descriptor of AMQP's own domain; n is the size of both.
func readCode(b []byte) (c Code, n int, err error) {
	if len(b) == 0 {
		return 0, 0, errShort
	}
	if b[0] != tDescribed {
		return 0, 0, badf("constructor 0x%02x where a described value belongs", b[0])
	}
	d, n, err := readDescriptor(b[1:])
	if err != nil {
		return 0, 0, err
	}
	if d.symbol != nil {
		c = codeOf(string(d.symbol))
	} else if d.other == nil && d.number <= 0xff {
		c = Code(d.number)
	}
	if c == 0 {
		return 0, 0, badf("the descriptor is not one of AMQP's own")
	}
	return c, 1 + n, nil
}

// codeOf returns the code for the symbolic form of a descriptor, 0 for an unknown one. No client
// library that we know writes it, but AMQP 1.0 §1.5 allows it.
func codeOf(name string) Code {
	switch name {
	case "amqp:open:list":
		return CodeOpen
	case "amqp:begin:list":
		return CodeBegin
	case "amqp:attach:list":
		return CodeAttach
	case "amqp:flow:list":
		return CodeFlow
	case "amqp:transfer:list":
		return CodeTransfer
	case "amqp:disposition:list":
		return CodeDisposition
	case "amqp:detach:list":
		return CodeDetach
	case "amqp:end:list":
		return CodeEnd
	case "amqp:close:list":
		return CodeClose
	case "amqp:error:list":
		return CodeError
	case "amqp:received:list":
		return CodeReceived
	case "amqp:accepted:list":
		return CodeAccepted
	case "amqp:rejected:list":
		return CodeRejected
	case "amqp:released:list":
		return CodeReleased
	case "amqp:modified:list":
		return CodeModified
	case "amqp:source:list":
		return CodeSource
	case "amqp:target:list":
		return CodeTarget
	case "amqp:coordinator:list":
		return CodeCoordinator
	case "amqp:declare:list":
		return CodeDeclare
	case "amqp:discharge:list":
		return CodeDischarge
	case "amqp:declared:list":
		return CodeDeclared
	case "amqp:transactional-state:list":
		return CodeTransactionalState
	}
	return sectionOrSASL(name)
}

func sectionOrSASL(name string) Code {
	switch name {
	case "amqp:sasl-mechanisms:list":
		return CodeSASLMechanisms
	case "amqp:sasl-init:list":
		return CodeSASLInit
	case "amqp:sasl-challenge:list":
		return CodeSASLChallenge
	case "amqp:sasl-response:list":
		return CodeSASLResponse
	case "amqp:sasl-outcome:list":
		return CodeSASLOutcome
	case "amqp:header:list":
		return CodeHeader
	case "amqp:delivery-annotations:map":
		return CodeDeliveryAnnotations
	case "amqp:message-annotations:map":
		return CodeMessageAnnotations
	case "amqp:properties:list":
		return CodeProperties
	case "amqp:application-properties:map":
		return CodeApplicationProperties
	case "amqp:data:binary":
		return CodeData
	case "amqp:amqp-sequence:list":
		return CodeAMQPSequence
	case "amqp:amqp-value:*":
		return CodeAMQPValue
	case "amqp:footer:map":
		return CodeFooter
	}
	return 0
}
