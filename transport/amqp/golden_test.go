package amqp

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// readHex reads annotated hex: bytes, then optionally a semicolon and what they mean. A line that
// begins with # says what the whole is.
func readHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line, _, _ = strings.Cut(line, ";")
		b, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		out = append(out, b...)
	}
	return out
}

// unhex reads hex with spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rawOf encodes a value.
func rawOf(v any) Raw {
	b, err := AppendValue(nil, v)
	if err != nil {
		panic(err)
	}
	return b
}

func symbolMap(kv ...any) Raw {
	m := Map{}
	for i := 0; i < len(kv); i += 2 {
		m = append(m, Pair{Key: kv[i], Value: kv[i+1]})
	}
	return rawOf(m)
}

type goldenFrame struct {
	channel uint16
	p       Performative
	payload []byte
}

var (
	guidTag = []byte{
		0x70, 0x4a, 0xdc, 0xb5, 0x5d, 0xac, 0xb3, 0x43,
		0xb1, 0x32, 0xec, 0x8f, 0xcd, 0xac, 0x3a, 0x9d,
	}
	txnID = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	hello = AppendData(nil, []byte("hello"))
)

func goldenFrames() map[string]goldenFrame {
	all := map[string]goldenFrame{}
	for _, part := range []map[string]goldenFrame{
		goldenConnection(), goldenAttach(), goldenFlow(), goldenTransfer(), goldenDisposition(),
	} {
		for name, g := range part {
			all[name] = g
		}
	}
	return all
}

func goldenConnection() map[string]goldenFrame {
	return map[string]goldenFrame{
		"sasl_mechanisms": {p: &SASLMechanisms{
			Mechanisms: []Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}}},
		"sasl_init": {p: &SASLInit{Mechanism: "ANONYMOUS",
			InitialResponse: []byte("anonymous"), Hostname: Some("ns.example")}},
		"sasl_challenge":  {p: &SASLChallenge{Challenge: []byte{1, 2}}},
		"sasl_response":   {p: &SASLResponse{Response: []byte{}}},
		"sasl_outcome_ok": {p: &SASLOutcome{Outcome: SASLOK}},
		"sasl_outcome_auth": {p: &SASLOutcome{Outcome: SASLAuth,
			AdditionalData: []byte("Welcome!")}},
		"open_client": {p: &Open{ContainerID: "container-1", Hostname: Some("ns.example:5671"),
			MaxFrameSize: Some(uint32(65536)), ChannelMax: Some(uint16(65535)),
			IdleTimeOut: Some(uint32(30000)),
			Properties:  symbolMap(Symbol("product"), "MSGolangClient")}},
		"open_server": {p: &Open{ContainerID: "node-1", MaxFrameSize: Some(uint32(65536)),
			ChannelMax: Some(uint16(4999)), IdleTimeOut: Some(uint32(240000)),
			OutgoingLocales: []Symbol{"en-US"}, OfferedCapabilities: []Symbol{"a", "b"}}},
		"begin_client": {1, &Begin{IncomingWindow: 5000, OutgoingWindow: 4294967295,
			HandleMax: Some(uint32(4294967294))}, nil},
		"begin_server": {1, &Begin{RemoteChannel: Some(uint16(1)), NextOutgoingID: 1,
			IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: Some(uint32(255))}, nil},
		"detach": {1, &Detach{Handle: 4, Closed: true}, nil},
		"detach_error": {1, &Detach{Handle: 4, Closed: true,
			Error: &Error{Condition: ConditionTimeout, Description: "no session"}}, nil},
		"end": {1, &End{}, nil},
		"end_error": {1, &End{Error: &Error{Condition: ConditionUnattachedHandle,
			Description: "handle 9"}}, nil},
		"close": {0, &Close{}, nil},
		"close_error": {0, &Close{Error: &Error{Condition: ConditionResourceLimitExceeded,
			Description: "local-idle-timeout expired"}}, nil},
	}
}

func goldenAttach() map[string]goldenFrame {
	u8, u32 := Some[uint8], Some[uint32]
	lifetime := symbolMap(Symbol("lifetime-policy"), Described{uint64(0x2b), List{}})
	return map[string]goldenFrame{
		"attach_sender": {1, &Attach{Name: "tx", SndSettleMode: u8(2), RcvSettleMode: u8(0),
			Source: &Source{}, Target: &Target{Address: Some("orders")},
			InitialDeliveryCount: u32(0)}, nil},
		"attach_sender_reply": {1, &Attach{Name: "tx", Role: RoleReceiver, SndSettleMode: u8(2),
			RcvSettleMode: u8(0), Source: &Source{}, Target: &Target{Address: Some("orders")},
			MaxMessageSize: Some(uint64(1048576))}, nil},
		"attach_cbs_receiver": {1, &Attach{Name: "cbs-rx", Handle: 1, Role: RoleReceiver,
			SndSettleMode: u8(1), RcvSettleMode: u8(0), Source: &Source{Address: Some("$cbs")},
			Target: &Target{Address: Some("$cbs$$cbs-reply-to-1")}}, nil},
		"attach_session_described": {2, &Attach{Name: "srx", Handle: 3, Role: RoleReceiver,
			SndSettleMode: u8(0), RcvSettleMode: u8(1),
			Source: &Source{Address: Some("orders"), Filter: symbolMap(FilterSession,
				Described{uint64(0x000000137000000c), "s1"})},
			Target: &Target{Address: Some("tgt")}}, nil},
		"attach_session_next": {2, &Attach{Name: "srx", Handle: 3, Role: RoleReceiver,
			Source: &Source{Address: Some("/orders"), Filter: symbolMap(FilterSession, nil)},
			Target: &Target{}, Properties: symbolMap(Symbol("com.microsoft:timeout"),
				uint32(59000))}, nil},
		"attach_session_reply": {2, &Attach{Name: "srx", Handle: 3,
			Source: &Source{Address: Some("/orders"), Filter: symbolMap(FilterSession, "s1")},
			Target: &Target{}, InitialDeliveryCount: u32(0),
			MaxMessageSize: Some(uint64(1048576)),
			Properties: symbolMap(Symbol("com.microsoft:locked-until-utc"),
				int64(636161362214638052))}, nil},
		"attach_refused": {2, &Attach{Name: "rx", Handle: 4, SndSettleMode: u8(0),
			RcvSettleMode: u8(0), Target: &Target{}, InitialDeliveryCount: u32(0)}, nil},
		"attach_coordinator": {3, &Attach{Name: "txn", SndSettleMode: u8(0), Source: &Source{},
			Coordinator: &Coordinator{Capabilities: []Symbol{
				"amqp:local-transactions", "amqp:multi-txns-per-ssn"}},
			InitialDeliveryCount: u32(0)}, nil},
		"attach_everything": {65535, &Attach{Name: "all", Handle: 4294967295, Role: RoleReceiver,
			SndSettleMode: u8(1), RcvSettleMode: u8(1),
			Source: &Source{Address: Some("src"), Durable: 2, ExpiryPolicy: "never", Timeout: 300,
				Dynamic: true, DynamicNodeProperties: lifetime, DistributionMode: "move",
				Filter:         symbolMap(Symbol("f"), nil),
				DefaultOutcome: rawOf(Described{uint64(CodeModified), List{}}),
				Outcomes:       []Symbol{"amqp:accepted:list", "amqp:released:list"},
				Capabilities:   []Symbol{"queue"}},
			Target: &Target{Address: Some("dst"), Durable: 2, ExpiryPolicy: "never", Timeout: 300,
				Dynamic: true, DynamicNodeProperties: lifetime, Capabilities: []Symbol{"topic"}},
			Unsettled:           symbolMap([]byte{1, 2}, Described{uint64(CodeAccepted), List{}}),
			IncompleteUnsettled: true, InitialDeliveryCount: u32(256),
			MaxMessageSize:      Some(uint64(1<<64 - 1)),
			OfferedCapabilities: []Symbol{"x"}, DesiredCapabilities: []Symbol{"y", "z"},
			Properties: symbolMap(Symbol("k"), strings.Repeat("v", 300))}, nil},
		"attach_coordinator_plain": {3, &Attach{Name: "txn",
			Source: &Source{Address: Some("guid")}, Coordinator: &Coordinator{}}, nil},
	}
}

func goldenFlow() map[string]goldenFrame {
	u32 := Some[uint32]
	return map[string]goldenFrame{
		"flow_credit": {1, &Flow{NextIncomingID: u32(0), IncomingWindow: 5000, NextOutgoingID: 1,
			OutgoingWindow: 5000, Handle: u32(0), DeliveryCount: u32(0),
			LinkCredit: u32(1000)}, nil},
		"flow_session": {1, &Flow{IncomingWindow: 2048, OutgoingWindow: 4294967295,
			Echo: true}, nil},
		"flow_drain": {1, &Flow{NextIncomingID: u32(7), IncomingWindow: 2048, NextOutgoingID: 2,
			OutgoingWindow: 4294967295, Handle: u32(1), DeliveryCount: u32(3),
			LinkCredit: u32(10), Drain: true}, nil},
		"flow_drained": {1, &Flow{NextIncomingID: u32(2), IncomingWindow: 5000, NextOutgoingID: 7,
			OutgoingWindow: 5000, Handle: u32(1), DeliveryCount: u32(13), LinkCredit: u32(0),
			Available: u32(0), Drain: true}, nil},
		"flow_properties": {1, &Flow{NextIncomingID: u32(4294967295), IncomingWindow: 5000,
			NextOutgoingID: 1, OutgoingWindow: 5000, Handle: u32(0),
			DeliveryCount: u32(4294967295), LinkCredit: u32(1),
			Properties: symbolMap(Symbol("txn-id"), txnID)}, nil},
	}
}

func goldenTransfer() map[string]goldenFrame {
	u32, no := Some[uint32], Some(false)
	one := AppendData(nil, []byte("one"))
	two := AppendData(nil, []byte("two"))
	request := AppendProperties(nil, &Properties{
		MessageID: rawOf("m1"), To: []byte("$cbs"), ReplyTo: []byte("r1")})
	w := BeginMapSection(request, CodeApplicationProperties)
	w.String("operation", "put-token")
	w.String("type", "jwt")
	w.String("name", "amqps://ns/orders")
	request, _ = AppendValueBody(w.End(), "tok")
	response := AppendProperties(nil, &Properties{CorrelationID: rawOf(uint64(0))})
	w = BeginMapSection(response, CodeApplicationProperties)
	w.Int("status-code", 202)
	w.Int("statusCode", 202)
	w.String("status-description", "Accepted")
	w.String("statusDescription", "Accepted")
	response, _ = AppendValueBody(w.End(), nil)
	return map[string]goldenFrame{
		"transfer_message": {1, &Transfer{Handle: 1, DeliveryID: u32(0), DeliveryTag: guidTag,
			MessageFormat: u32(FormatAMQP), Settled: no}, hello},
		"transfer_batch": {1, &Transfer{DeliveryID: u32(5),
			DeliveryTag: []byte{0, 0, 0, 0, 0, 0, 0, 1}, MessageFormat: u32(FormatBatch),
			Settled: no}, AppendData(AppendData(nil, one), two)},
		"transfer_first": {1, &Transfer{DeliveryID: u32(6), DeliveryTag: []byte("6"),
			MessageFormat: u32(FormatAMQP), Settled: no, More: true}, hello[:7]},
		"transfer_last": {1, &Transfer{}, hello[7:]},
		"transfer_aborted": {1, &Transfer{Settled: Some(true), Resume: true, Aborted: true,
			Batchable: true}, []byte{}},
		"transfer_transactional": {1, &Transfer{Handle: 300, DeliveryID: u32(7),
			DeliveryTag: bytes.Repeat([]byte("0"), 32), MessageFormat: u32(0), Settled: no,
			RcvSettleMode: Some(ReceiverSecond), State: &TransactionalState{TxnID: txnID}}, hello},
		"transfer_put_token": {1, &Transfer{DeliveryID: u32(0),
			DeliveryTag: []byte{0, 0, 0, 0, 0, 0, 0, 1}, MessageFormat: u32(0), Settled: no},
			request},
		"transfer_response": {1, &Transfer{Handle: 1, DeliveryID: u32(0), DeliveryTag: []byte{0},
			MessageFormat: u32(0), Settled: Some(true)}, response},
		"transfer_declare": {3, &Transfer{DeliveryID: u32(0), DeliveryTag: []byte{0},
			MessageFormat: u32(0), Settled: no}, AppendDeclare(nil, Declare{})},
		"transfer_discharge": {3, &Transfer{DeliveryID: u32(1), DeliveryTag: []byte{1},
			MessageFormat: u32(0), Settled: no}, AppendDischarge(nil, Discharge{TxnID: txnID})},
	}
}

func goldenDisposition() map[string]goldenFrame {
	u32, yes, no := Some[uint32], Some(true), Some(false)
	d := func(role Role, first uint32, last Opt[uint32], settled bool, s DeliveryState,
	) goldenFrame {
		return goldenFrame{1, &Disposition{role, first, last, settled, s, false}, nil}
	}
	frames := map[string]goldenFrame{
		"disposition_accepted":       d(RoleReceiver, 1, u32(300), false, Accepted{}),
		"disposition_settled":        d(RoleReceiver, 4294967295, Opt[uint32]{}, true, nil),
		"disposition_accepted_reply": d(RoleSender, 1, u32(300), true, Accepted{}),
		"disposition_released":       d(RoleReceiver, 2, u32(2), false, Released{}),
		"disposition_abandoned_reply": d(RoleSender, 3, u32(3), true,
			Modified{UndeliverableHere: no}),
		"disposition_deferred_reply": d(RoleSender, 3, Opt[uint32]{}, true,
			Modified{UndeliverableHere: yes}),
		"disposition_abandon_properties": d(RoleReceiver, 3, u32(3), true, Modified{
			DeliveryFailed: yes, UndeliverableHere: no, MessageAnnotations: symbolMap("colour",
				"red")}),
		"disposition_dead_letter": d(RoleReceiver, 4, u32(4), false, Rejected{&Error{
			Condition: ConditionDeadLetter, Info: symbolMap(Symbol("DeadLetterReason"), "bad",
				Symbol("DeadLetterErrorDescription"), "why")}}),
		"disposition_dead_letter_reply": d(RoleSender, 4, u32(4), true, Rejected{}),
		"disposition_lock_lost": d(RoleSender, 5, u32(5), true, Rejected{&Error{
			Condition: ConditionMessageLockLost, Description: "The lock supplied is invalid."}}),
		"disposition_declared": d(RoleReceiver, 0, u32(0), true, Declared{TxnID: txnID}),
		"disposition_transactional": d(RoleReceiver, 7, u32(7), false,
			&TransactionalState{TxnID: txnID, Outcome: Accepted{}}),
	}
	declared := frames["disposition_declared"]
	declared.channel = 3
	frames["disposition_declared"] = declared
	frames["disposition_received"] = goldenFrame{1, &Disposition{Role: RoleReceiver, First: 6,
		State: Received{SectionNumber: 2, SectionOffset: 1024}, Batchable: true}, nil}
	return frames
}

// withoutEncoded clears what only a decoded attach has, after checking that it is there.
func withoutEncoded(t *testing.T, p Performative) {
	t.Helper()
	a, ok := p.(*Attach)
	if !ok {
		return
	}
	if a.Source != nil {
		if a.Source.Encoded == nil {
			t.Error("a decoded source lacks its bytes")
		}
		a.Source.Encoded = nil
	}
	if a.Target != nil {
		a.Target.Encoded = nil
	}
	if a.Coordinator != nil {
		a.Coordinator.Encoded = nil
	}
}

// TestGoldenFrames pins the bytes of every performative in both directions: every field is written
// (G1), descriptors are small ulongs (G2).
func TestGoldenFrames(t *testing.T) {
	files, err := filepath.Glob("testdata/frames/*.hex")
	if err != nil {
		t.Fatal(err)
	}
	frames := goldenFrames()
	if len(files) != len(frames) {
		t.Errorf("%d files for %d frames", len(files), len(frames))
	}
	for name, want := range frames {
		t.Run(name, func(t *testing.T) {
			b := readHex(t, "testdata/frames/"+name+".hex")
			if got := encodeGolden(want); !bytes.Equal(got, b) {
				t.Errorf("encoded\ngot  % x\nwant % x", got, b)
			}
			frame, err := NewReader(bytes.NewReader(b), 4096).ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if wantType := FrameType(b[5]); frame.Type != wantType ||
				frame.Channel != want.channel {
				t.Errorf("type %d, channel %d", frame.Type, frame.Channel)
			}
			p, payload, err := DecodePerformative(frame.Body)
			if err != nil {
				t.Fatal(err)
			}
			again := encodeGolden(goldenFrame{want.channel, p, payload})
			if !bytes.Equal(again, b) {
				t.Errorf("encoded again\ngot  % x\nwant % x", again, b)
			}
			withoutEncoded(t, p)
			if !reflect.DeepEqual(p, want.p) {
				t.Errorf("decoded\ngot  %#v\nwant %#v", p, want.p)
			}
			if !bytes.Equal(payload, want.payload) {
				t.Errorf("payload\ngot  % x\nwant % x", payload, want.payload)
			}
		})
	}
}

// encodeGolden writes a golden frame by the function that belongs to it.
func encodeGolden(g goldenFrame) []byte {
	switch p := g.p.(type) {
	case *Transfer:
		return AppendTransfer(nil, g.channel, p, g.payload)
	case *Disposition:
		return AppendDisposition(nil, g.channel, p)
	case *Flow:
		return AppendFlow(nil, g.channel, p)
	}
	return AppendFrame(nil, g.channel, g.p)
}
