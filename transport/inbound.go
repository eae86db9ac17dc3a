package transport

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// inbound is one delivery from the client.
type inbound struct {
	id       uint32
	format   uint32
	settled  bool
	dropped  bool // refused while it was arriving; the rest of its frames means nothing
	bytes    int
	payload  []byte
	spare    int // memory of payload that is not filled yet, if that is large
	messages []fsm.Message
	txnID    []byte          // of the transaction that it is part of, nil if none
	badState bool            // a request came in a state that no request has
	via      *fsm.Descriptor // through which it goes, nil if straight
	text     string          // what selects the share
	byText   bool
	refusal  *amqp.Error
	// translated says that the messages or the refusal are there.
	translated bool
	gone       bool      // the entity does not exist any more
	arrived    time.Time // its last byte; zero if nobody asks
	traces     []*traced // of those of its messages that are traced
	// proposed and committed are when the log was given the messages, and when it had them; zero if none is traced.
	proposed, committed time.Time
}
