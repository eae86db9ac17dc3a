package amqp

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestPerformativesAsClientsShortenThem(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		want      Performative
		payload   []byte
	}{
		{"open with a container-id alone", "00 53 10 c0 04 01 a1 01 63", &Open{ContainerID: "c"},
			nil},
		{"open with its symbolic descriptor",
			"00 a3 0e 616d71703a6f70656e3a6c697374 c0 04 01 a1 01 63",
			&Open{ContainerID: "c"}, nil},
		{"open with one locale that is no array",
			"00 53 10 c0 0c 06 a1 01 63 40 40 40 40 a3 02 64 65",
			&Open{ContainerID: "c", OutgoingLocales: []Symbol{"de"}}, nil},
		{"open with an empty array as the Python client writes it",
			"00 53 10 c0 0b 06 a1 01 63 40 40 40 40 e0 01 00",
			&Open{ContainerID: "c", OutgoingLocales: []Symbol{}}, nil},
		{"begin with wide numbers",
			"00 80 00 00 00 00 00 00 00 11 c0 11 04 40 70 00 00 00 01 70 00 00 08 00 70 00 00 00 02",
			&Begin{NextOutgoingID: 1, IncomingWindow: 2048, OutgoingWindow: 2}, nil},
		{"attach without an initial-delivery-count (G22)", "00 53 12 c0 06 03 a1 01 6c 43 42",
			&Attach{Name: "l"}, nil},
		{"flow of a session alone", "00 53 13 c0 08 04 43 52 05 52 01 52 05",
			&Flow{NextIncomingID: Some(uint32(0)), IncomingWindow: 5, NextOutgoingID: 1,
				OutgoingWindow: 5}, nil},
		{"transfer with five fields and a payload",
			"00 53 14 c0 09 05 43 43 a0 01 07 43 56 01 00 53 77 40",
			&Transfer{DeliveryID: Some(uint32(0)), DeliveryTag: []byte{7},
				MessageFormat: Some(uint32(0)), Settled: Some(true)}, []byte{0, 0x53, 0x77, 0x40}},
		{"transfer with an empty tag", "00 53 14 c0 05 03 43 43 a0 00",
			&Transfer{DeliveryID: Some(uint32(0)), DeliveryTag: []byte{}}, []byte{}},
		{"disposition with role and first alone", "00 53 15 c0 03 02 41 43",
			&Disposition{Role: RoleReceiver}, nil},
		{"modified without fields", "00 53 15 c0 09 05 41 43 43 42 00 53 27 45",
			&Disposition{Role: RoleReceiver, Last: Some(uint32(0)), State: Modified{}}, nil},
		{"rejected without a field (Q14)", "00 53 15 c0 0b 05 41 43 43 42 00 53 25 c0 01 00",
			&Disposition{Role: RoleReceiver, Last: Some(uint32(0)), State: Rejected{}}, nil},
		{"error with a condition alone", "00 53 18 c0 09 01 00 53 1d c0 03 01 a3 00",
			&Close{Error: &Error{}}, nil},
		{"detach with a handle alone", "00 53 16 c0 02 01 43", &Detach{}, nil},
		{"close without a field", "00 53 18 45", &Close{}, nil},
		{"sasl-mechanisms with one symbol that is no array", "00 53 40 c0 04 01 a3 01 58",
			&SASLMechanisms{Mechanisms: []Symbol{"X"}}, nil},
		{"sasl-init with a mechanism alone", "00 53 41 c0 04 01 a3 01 58",
			&SASLInit{Mechanism: "X"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, payload, err := DecodePerformative(unhex(t, tc.hex))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(p, tc.want) || !bytes.Equal(payload, tc.payload) {
				t.Errorf("got %#v, payload % x", p, payload)
			}
			if c, err := PeekCode(unhex(t, tc.hex)); c != tc.want.Code() || err != nil {
				t.Errorf("code 0x%02x, %v", uint8(c), err)
			}
		})
	}
}

func TestMalformedPerformativesAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, reason, hex string }{
		{"no bytes", "the value ends beyond its bytes",
			""},
		{"no described value", "constructor 0xc0 where a described value belongs",
			"c0 01 00"},
		{"a descriptor of another domain", "the descriptor is not one of AMQP's own",
			"00 80 00 00 00 01 00 00 00 10 45"},
		{"a descriptor that is 0", "the descriptor is not one of AMQP's own",
			"00 44 45"},
		{"an unknown symbolic descriptor", "the descriptor is not one of AMQP's own",
			"00 a3 01 78 45"},
		{"a section where a performative belongs", "descriptor 0x75 is no performative",
			"00 53 75 a0 00"},
		{"a delivery state as a performative", "descriptor 0x24 is no performative",
			"00 53 24 45"},
		{"a string as descriptor", "the descriptor is not one of AMQP's own",
			"00 a1 0e 616d71703a6f70656e3a6c697374 c0 04 01 a1 01 63"},
		{"a map where the list belongs", "constructor 0xc1 where a list belongs",
			"00 53 10 c1 01 00"},
		{"a descriptor and no more", "the value ends beyond its bytes",
			"00 53 10"},
		{"open without a container-id", "field 0: is mandatory",
			"00 53 10 45"},
		{"open with a null container-id", "field 1: is mandatory",
			"00 53 10 c0 02 01 40"},
		{"open with a symbol as container-id", "field 1: constructor 0xa3 is of another type",
			"00 53 10 c0 04 01 a3 01 63"},
		{"open with eleven fields", "1 fields more than the type has",
			"00 53 10 c0 0e 0b a1 01 63 40 40 40 40 40 40 40 40 40 40"},
		{"open with a list as properties", "field 10: constructor 0x45 is of another type",
			"00 53 10 c0 0d 0a a1 01 63 40 40 40 40 40 40 40 40 45"},
		{"open with an array of uints as locales", "field 6: constructor 0xe0 is of another type",
			"00 53 10 c0 0c 06 a1 01 63 40 40 40 40 e0 02 00 70"},
		{"open with bytes behind it", "1 bytes behind performative 0x10",
			"00 53 10 c0 04 01 a1 01 63 00"},
		{"begin without windows", "field 2: is mandatory",
			"00 53 11 c0 03 02 40 43"},
		{"attach with a settle mode of 3", "field 4: settle mode 3 does not exist",
			"00 53 12 c0 08 04 a1 01 6c 43 42 50 03"},
		{"attach with a receiver settle mode of 2", "field 5: settle mode 2 does not exist",
			"00 53 12 c0 09 05 a1 01 6c 43 42 40 50 02"},
		{"attach with a target as source", "descriptor 0x29 where 0x28 belongs",
			"00 53 12 c0 0c 06 a1 01 6c 43 42 40 40 00 53 29 45"},
		{"attach with a source as target", "descriptor 0x28 where 0x29 belongs",
			"00 53 12 c0 0d 07 a1 01 6c 43 42 40 40 40 00 53 28 45"},
		{"attach with a source that is a string",
			"constructor 0xa1 where a described value belongs",
			"00 53 12 c0 0a 06 a1 01 6c 43 42 40 40 a1 00"},
		{"attach with a source of twelve fields", "1 fields more than the type has",
			"00 53 12 c0 1a 06 a1 01 6c 43 42 40 40 00 53 28 c0 0d 0c 40 40 40 40 40 40 40 40 40 40 40 40"},
		{"attach with an address that is a uint", "field 1: constructor 0x43 is of another type",
			"00 53 12 c0 0f 06 a1 01 6c 43 42 40 40 00 53 28 c0 02 01 43"},
		{"attach with a coordinator of two fields", "1 fields more than the type has",
			"00 53 12 c0 11 07 a1 01 6c 43 42 40 40 40 00 53 30 c0 03 02 40 40"},
		{"flow without an outgoing-window", "field 3: is mandatory",
			"00 53 13 c0 04 03 43 43 43"},
		{"flow with a credit that is a ulong", "field 7: constructor 0x44 is of another type",
			"00 53 13 c0 08 07 40 43 43 43 40 40 44"},
		{"transfer without a handle", "field 0: is mandatory",
			"00 53 14 45"},
		{"transfer with a tag of 33 bytes", "field 3: has 33 bytes, more than 32",
			"00 53 14 c0 26 03 43 43 a0 21" + strings.Repeat(" 00", 33)},
		{"transfer with a tag beyond its list", "the value ends beyond its bytes",
			"00 53 14 c0 05 03 43 43 a0 05 01 02 03 04 05"},
		{"transfer with a boolean of 2", "a boolean is neither 0 nor 1",
			"00 53 14 c0 07 05 43 40 40 40 56 02"},
		{"transfer whose list ends before its count", "size and count of a compound disagree",
			"00 53 14 c0 02 0b 43"},
		{"transfer whose uint is cut", "the value ends beyond its bytes",
			"00 53 14 c0 03 01 70 00"},
		{"transfer whose list goes beyond the frame", "the value ends beyond its bytes",
			"00 53 14 c0 ff 01 43"},
		{"transfer with a state that is no state", "descriptor 0x1d is no delivery state",
			"00 53 14 c0 0c 08 43 40 40 40 40 40 40 00 53 1d 45"},
		{"disposition without first", "field 1: is mandatory",
			"00 53 15 c0 02 01 41"},
		{"disposition with an accepted of one field", "1 fields more than the type has",
			"00 53 15 c0 0c 05 41 43 43 42 00 53 24 c0 02 01 40"},
		{"disposition with a state that is a string",
			"constructor 0xa1 where a described value belongs",
			"00 53 15 c0 07 05 41 43 43 42 a1 00"},
		{"declared without a txn-id", "field 0: is mandatory",
			"00 53 15 c0 09 05 41 43 43 42 00 53 33 45"},
		{"a transactional state in another", "a transactional state within a transactional state",
			"00 53 15 c0 14 05 41 43 43 42 00 53 34 c0 0a 02 a0 00 00 53 34 c0 02 01 40"},
		{"a transactional state with a long id", "field 1: has 33 bytes, more than 32",
			"00 53 15 c0 2e 05 41 43 43 42 00 53 34 c0 24 01 a0 21" + strings.Repeat(" 00", 33)},
		{"detach with an error that is no error", "descriptor 0x24 where 0x1d belongs",
			"00 53 16 c0 07 03 43 41 00 53 24 45"},
		{"close with an error without condition", "field 0: is mandatory",
			"00 53 18 c0 05 01 00 53 1d 45"},
		{"close with an info that is no map", "field 3: constructor 0x45 is of another type",
			"00 53 18 c0 0b 01 00 53 1d c0 05 03 a3 00 40 45"},
		{"sasl-mechanisms that are null", "field 1: is mandatory",
			"00 53 40 c0 02 01 40"},
		{"sasl-init without a mechanism", "field 0: is mandatory",
			"00 53 41 45"},
		{"sasl-response that is null", "field 1: is mandatory",
			"00 53 43 c0 02 01 40"},
		{"sasl-outcome of 5", "field 1: outcome 5 does not exist",
			"00 53 44 c0 03 01 50 05"},
		{"an unsettled map of nothing but a count", "size and count of a compound disagree",
			"00 53 12 c0 13 08 a1 01 6c 43 42 40 40 40 40 d1 00 00 00 04 ff ff ff fe"},
		{"properties with an array of 2³²−1 nulls", "more elements than the bytes may hold",
			"00 53 10 c0 1b 0a a1 01 63 40 40 40 40 40 40 40 40 c1 0d 02 a3 00 f0 00 00 00 05 ff ff ff ff 40"},
		{"capabilities that are 2³²−1 empty symbols", "size and count of a compound disagree",
			"00 53 10 c0 14 08 a1 01 63 40 40 40 40 40 40 f0 00 00 00 05 ff ff ff ff a3"},
		{"a list32 whose size is beyond the int", "the value ends beyond its bytes",
			"00 53 10 d0 ff ff ff ff 00 00 00 01 a1 01 63"},
		{"a list32 that claims 2³²−1 fields", "size and count of a compound disagree",
			"00 53 10 d0 00 00 00 07 ff ff ff ff a1 01 63"},
		{"a symbolic descriptor longer than the body", "the value ends beyond its bytes",
			"00 b3 ff ff ff ff 61"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, payload, err := DecodePerformative(unhex(t, tc.hex))
			if !errors.Is(err, ErrDecode) || p != nil || payload != nil {
				t.Fatalf("got %#v, % x, %v", p, payload, err)
			}
			if got := err.Error(); got != ErrDecode.Error()+": "+tc.reason {
				t.Errorf("refused because: %s", got)
			}
		})
	}
}

// Everything cut short is an error, whichever byte it ends at.
func TestCutPerformativesAreRefused(t *testing.T) {
	for name, g := range goldenFrames() {
		body := encodeGolden(goldenFrame{g.channel, g.p, nil})[FrameHeaderBytes:]
		for n := range len(body) {
			if _, _, err := DecodePerformative(body[:n]); !errors.Is(err, ErrDecode) {
				t.Errorf("%s, the first %d of %d bytes: %v", name, n, len(body), err)
			}
		}
	}
}

func TestSymbolicDescriptors(t *testing.T) {
	for _, tc := range []struct {
		name string
		want Code
	}{
		{"amqp:open:list", CodeOpen}, {"amqp:begin:list", CodeBegin},
		{"amqp:attach:list", CodeAttach}, {"amqp:flow:list", CodeFlow},
		{"amqp:transfer:list", CodeTransfer}, {"amqp:disposition:list", CodeDisposition},
		{"amqp:detach:list", CodeDetach}, {"amqp:end:list", CodeEnd},
		{"amqp:close:list", CodeClose}, {"amqp:error:list", CodeError},
		{"amqp:received:list", CodeReceived}, {"amqp:accepted:list", CodeAccepted},
		{"amqp:rejected:list", CodeRejected}, {"amqp:released:list", CodeReleased},
		{"amqp:modified:list", CodeModified}, {"amqp:source:list", CodeSource},
		{"amqp:target:list", CodeTarget}, {"amqp:coordinator:list", CodeCoordinator},
		{"amqp:declare:list", CodeDeclare}, {"amqp:discharge:list", CodeDischarge},
		{"amqp:declared:list", CodeDeclared},
		{"amqp:transactional-state:list", CodeTransactionalState},
		{"amqp:sasl-mechanisms:list", CodeSASLMechanisms}, {"amqp:sasl-init:list", CodeSASLInit},
		{"amqp:sasl-challenge:list", CodeSASLChallenge},
		{"amqp:sasl-response:list", CodeSASLResponse},
		{"amqp:sasl-outcome:list", CodeSASLOutcome}, {"amqp:header:list", CodeHeader},
		{"amqp:delivery-annotations:map", CodeDeliveryAnnotations},
		{"amqp:message-annotations:map", CodeMessageAnnotations},
		{"amqp:properties:list", CodeProperties},
		{"amqp:application-properties:map", CodeApplicationProperties},
		{"amqp:data:binary", CodeData}, {"amqp:amqp-sequence:list", CodeAMQPSequence},
		{"amqp:amqp-value:*", CodeAMQPValue}, {"amqp:footer:map", CodeFooter},
	} {
		got, err := PeekCode(append(AppendSymbol([]byte{tDescribed}, Symbol(tc.name)), tList0))
		if got != tc.want || err != nil {
			t.Errorf("%s: 0x%02x, %v", tc.name, uint8(got), err)
		}
	}
}

func TestTransferIsCutToFrames(t *testing.T) {
	head, body := bytes.Repeat([]byte{1}, 300), bytes.Repeat([]byte{2}, 1000)
	for _, tc := range []struct {
		name       string
		max        uint32
		head, body []byte
		frames     int
	}{
		{"one frame", 65536, head, body, 1},
		{"three frames", 512, head, body, 3},
		{"a limit of 0 is the smallest one", 0, head, body, 3},
		{"nothing to carry", 512, nil, nil, 1},
		{"exactly one frame", 512, nil, bytes.Repeat([]byte{3}, 512-34), 1},
		{"one byte more", 512, nil, bytes.Repeat([]byte{3}, 512-33), 2},
		{"a head alone", 512, head, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := &Transfer{Handle: 1, DeliveryID: Some(uint32(300)), DeliveryTag: []byte("tag"),
				MessageFormat: Some(FormatAMQP), Settled: Some(false)}
			var out []byte
			h, b, frames := tc.head, tc.body, 0
			for {
				out, h, b = AppendTransferPart(out, 5, tr, tc.max, h, b)
				if frames++; !tr.More {
					break
				}
			}
			if frames != tc.frames || len(h)+len(b) > 0 {
				t.Errorf("%d frames, left %d and %d bytes", frames, len(h), len(b))
			}
			r := NewReader(bytes.NewReader(out), max(tc.max, MinMaxFrameSize))
			var got []byte
			for i := range frames {
				f, err := r.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				var p Transfer
				payload, err := p.Decode(f.Body)
				if err != nil || f.Channel != 5 || p.More != (i < frames-1) || p.Handle != 1 {
					t.Errorf("frame %d: %+v, %v", i, p, err)
				}
				got = append(got, payload...)
			}
			if !bytes.Equal(got, append(append([]byte{}, tc.head...), tc.body...)) {
				t.Errorf("%d bytes arrived", len(got))
			}
		})
	}
}

func TestClonedStatesOutliveTheFrame(t *testing.T) {
	for name, g := range goldenDisposition() {
		frame := encodeGolden(g)
		var d Disposition
		if err := d.Decode(frame[FrameHeaderBytes:]); err != nil {
			t.Fatal(err)
		}
		kept := CloneState(d.State)
		clear(frame)
		if want := g.p.(*Disposition).State; !reflect.DeepEqual(kept, want) {
			t.Errorf("%s: %#v, want %#v", name, kept, want)
		}
	}
}

func TestTransactionBodies(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		want      any
	}{
		{"declare", "00 53 77 00 53 31 c0 02 01 40", &Declare{}},
		{"declare without a field", "00 53 77 00 53 31 45", &Declare{}},
		{"commit", "00 53 77 00 53 32 c0 05 02 a0 01 07 42", &Discharge{TxnID: []byte{7}}},
		{"commit by default", "00 53 77 00 53 32 c0 04 01 a0 01 07", &Discharge{TxnID: []byte{7}}},
		{"roll back", "00 53 77 00 53 32 c0 05 02 a0 01 07 41",
			&Discharge{TxnID: []byte{7}, Fail: true}},
		{"discharge without a txn-id", "00 53 77 00 53 32 45", nil},
		{"a string", "00 53 77 a1 00", nil},
		{"another described list", "00 53 77 00 53 33 45", nil},
		{"bytes behind it", "00 53 77 00 53 31 45 00", nil},
		{"no body", "", nil},
		{"a data section", "00 53 75 a0 00", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DecodeTransaction(unhex(t, tc.hex))
			if tc.want == nil {
				if !errors.Is(err, ErrDecode) {
					t.Errorf("got %#v, %v", got, err)
				}
			} else if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %#v, %v", got, err)
			}
		})
	}
}
