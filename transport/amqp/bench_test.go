package amqp

import (
	"bytes"
	"testing"
)

func benchTransfer() (*Transfer, []byte) {
	return &Transfer{Handle: 1, DeliveryID: Some(uint32(70000)), DeliveryTag: guidTag,
		MessageFormat: Some(FormatAMQP), Settled: Some(false)}, bytes.Repeat([]byte{7}, 256)
}

func benchDisposition() *Disposition {
	return &Disposition{Role: RoleReceiver, First: 70000, Last: Some(uint32(70100)), Settled: true,
		State: Accepted{}}
}

func benchFlow() *Flow {
	u := Some[uint32]
	return &Flow{NextIncomingID: u(70000), IncomingWindow: 5000, NextOutgoingID: 80000,
		OutgoingWindow: 5000, Handle: u(1), DeliveryCount: u(70000), LinkCredit: u(1000)}
}

func benchMessage() []byte {
	b := AppendHeader(nil, Header{Durable: true, TTL: Some(uint32(60000))})
	w := BeginMapSection(b, CodeMessageAnnotations)
	w.String("x-opt-partition-key", "key")
	b = AppendProperties(w.End(), &Properties{MessageID: rawOf("0123456789abcdef"),
		GroupID: []byte("session-1"), ContentType: []byte("application/json")})
	w = BeginMapSection(b, CodeApplicationProperties)
	w.String("colour", "red")
	w.Long("size", 1000)
	return AppendData(w.End(), bytes.Repeat([]byte{7}, 256))
}

// hot are the operations that are done for every message or settlement. None may allocate.
func hot() map[string]func() {
	transfer, payload := benchTransfer()
	disposition, flow := benchDisposition(), benchFlow()
	transferBody := AppendTransfer(nil, 1, transfer, payload)[FrameHeaderBytes:]
	dispositionBody := AppendDisposition(nil, 1, disposition)[FrameHeaderBytes:]
	flowBody := AppendFlow(nil, 1, flow)[FrameHeaderBytes:]
	message := benchMessage()
	buf := make([]byte, 0, 4096)
	var t Transfer
	var d Disposition
	var f Flow
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	return map[string]func(){
		"DecodeTransfer":    func() { _, err := t.Decode(transferBody); must(err) },
		"DecodeDisposition": func() { must(d.Decode(dispositionBody)) },
		"DecodeFlow":        func() { must(f.Decode(flowBody)) },
		"EncodeTransfer":    func() { AppendTransfer(buf, 1, transfer, payload, payload) },
		"EncodeTransferPart": func() {
			for h, b := message, payload; len(h)+len(b) > 0; {
				_, h, b = AppendTransferPart(buf, 1, transfer, 512, h, b)
			}
		},
		"EncodeDisposition": func() { AppendDisposition(buf, 1, disposition) },
		"EncodeFlow":        func() { AppendFlow(buf, 1, flow) },
		"ParseMessage": func() {
			s, err := ParseMessage(message)
			must(err)
			_, err = s.ParseHeader()
			must(err)
			_, err = s.ParseProperties()
			must(err)
			if _, ok := s.Annotation("x-opt-partition-key"); !ok {
				panic("no key")
			}
		},
		"EncodeDeliveryHead": func() {
			b := AppendHeader(buf, Header{Durable: true})
			w := BeginMapSection(b, CodeMessageAnnotations)
			w.Timestamp("x-opt-enqueued-time", 1<<40)
			w.Long("x-opt-sequence-number", 1<<40)
			w.Timestamp("x-opt-locked-until", 1<<40)
			w.String("x-opt-partition-key", "key")
			w.End()
		},
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for name, f := range hot() {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkHot(b *testing.B) {
	for name, f := range hot() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
