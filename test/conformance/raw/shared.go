package raw

import (
	"encoding/binary"
	"fmt"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// sharedCode is the descriptor of the filter for sessions without exclusion (amqp-protocol.md 6.1).
const sharedCode = 0x000000137000000E

// Shared is a link that holds a session without exclusion.
type Shared struct {
	*amqp.Attach
	Session string
	Token   amqp.UUID // the session token, which another receiver presents to take the session over
}

// Share accepts a session without exclusion: id is a string, or nil for the next one. With a session token it takes
// the session over from whoever holds it.
func (c *Client) Share(address string, id any, token *amqp.UUID) (*Shared, error) {
	null := byte(0x40)
	fields := []byte{null}
	if text, ok := id.(string); ok {
		fields = amqp.AppendString(nil, text)
	}
	if token != nil {
		fields = amqp.AppendUUID(fields, *token)
	} else {
		fields = append(fields, null)
	}
	value := binary.BigEndian.AppendUint64([]byte{0x00, 0x80}, sharedCode)
	value = append(append(value, 0xC0, byte(1+len(fields)), 2), fields...)
	filter := amqp.BeginSymbolMap(nil)
	filter.SymbolPair(amqp.AppendSymbol(nil, amqp.FilterShared), value)
	limit := amqp.BeginSymbolMap(nil)
	limit.Uint("com.microsoft:timeout", 10_000)
	a, err := c.Attach(amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderUnsettled),
		RcvSettleMode: amqp.Some(amqp.ReceiverSecond), Target: &amqp.Target{Address: amqp.Some("identifier")},
		Source: &amqp.Source{Address: amqp.Some(address), Filter: filter.End()}, Properties: limit.End()})
	if err != nil {
		return nil, err
	}
	got, ok, err := a.Source.SharedFilter()
	if err != nil || !ok || !got.SessionID.Set || !got.Token.Set {
		return nil, fmt.Errorf("the filter is answered with %x: %w", []byte(a.Source.Filter), err)
	}
	return &Shared{Attach: a, Session: got.SessionID.Value, Token: got.Token.Value}, nil
}
