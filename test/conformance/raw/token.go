package raw

import "github.com/busbar-mq/busbar/transport/amqp"

// Anonymous is the SASL response of a client that sends tokens over $cbs.
func Anonymous() *amqp.SASLInit { return &amqp.SASLInit{Mechanism: "ANONYMOUS"} }

// Tokens opens the pair of links to $cbs. A connection may have one.
func (c *Client) Tokens() (*Asker, error) { return c.askerAt("$cbs", "cbs-replies") }

// PutToken sends a token for an audience over $cbs and returns the answer.
func (a *Asker) PutToken(audience, token string) (*Answer, error) {
	return a.PutTokenOf("servicebus.windows.net:sastoken", audience, token)
}

// PutTokenOf is PutToken for another type of token, such as "jwt".
func (a *Asker) PutTokenOf(kind, audience, token string) (*Answer, error) {
	return a.ask("put-token", []string{"name", audience, "type", kind}, nil, token)
}
