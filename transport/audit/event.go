package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// OK is the outcome of what was done. Any other outcome is the code of a refusal, or one of those below.
const (
	OK = "ok"
	// Aborted is the outcome of a request whose answer broke off.
	Aborted = "Aborted"
)

// The kinds of [Who].
const (
	byPolicy      = "policy"
	byToken       = "token"
	byDevelopment = "development" // the host of a development node, without a token
	byNode        = "node"        // nobody asked for it
	byNobody      = "nobody"      // no token was accepted
)

// The ways by which a request came.
const (
	ViaOperations = "operations"
	ViaManagement = "management" // over HTTP at a port of clients
	ViaMessages   = "messages"   // messages over HTTP at a port of clients
	ViaAMQP       = "amqp"
	ViaConsole    = "console"
	ViaNode       = "node"
)

// Bounds of a line. A longer text is clipped, and a longer line loses its before and after.
const (
	maxTextBytes  = 1 << 10
	maxAgentBytes = 128
	maxLineBytes  = 32 << 10
)

// Event is one line of the log. Texts that clients wrote are clipped when it is recorded.
type Event struct {
	// ID is the incarnation of the node and a number that counts up. A number that is missing was dropped.
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Action  string    `json:"action"`
	Outcome string    `json:"outcome"`
	// Tracking is the id that the client was told with a refusal; the log of the node has it, too.
	Tracking string `json:"trackingId,omitempty"`
	Who      Who    `json:"who"`
	Via      string `json:"via"`
	// Agent is what the client calls itself: its user agent, or its product over AMQP.
	Agent  string `json:"agent,omitempty"`
	Remote string `json:"remote,omitempty"` // address and port
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Status int    `json:"status,omitempty"` // of the answer over HTTP
	Entity string `json:"entity,omitempty"`
	// Parameters are those of the request that are known to hold no secret.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Before and After have the properties that differ.
	Before map[string]any    `json:"before,omitempty"`
	After  map[string]any    `json:"after,omitempty"`
	Counts map[string]uint64 `json:"counts,omitempty"`
	// Reason is why a token was not accepted, in the words that the client was told.
	Reason string `json:"reason,omitempty"`
	// Cut says that Before and After were left out of a line that would be too long.
	Cut bool `json:"cut,omitempty"`
}

// A Who names the cause of an event.
type Who struct {
	Kind string `json:"kind"`
	// Policy is the name of the policy whose key signed. In a refusal it is one that exists and that the client claimed.
	Policy string `json:"policy,omitempty"`
	Scope  string `json:"scope,omitempty"` // the entity of the policy, "" for the namespace
	// Subject and Issuer are those of a JSON web token. In a refusal the issuer is the provider that was asked.
	Subject string `json:"subject,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
}

// WhoOf tells whose claim it is.
func WhoOf(c auth.Claim) Who {
	switch {
	case c.Issuer != "":
		return Who{Kind: byToken, Subject: c.Policy, Issuer: c.Issuer}
	case c.Policy != "":
		return Who{Kind: byPolicy, Policy: c.Policy, Scope: c.Scope}
	}
	return Who{Kind: byNobody}
}

// Claimed is somebody whose token was not accepted. The policy must be one that exists: what else a client gives as a name
// may be its key.
func Claimed(policy string) Who { return Who{Kind: byNobody, Policy: policy} }

// TheNode is the node itself.
func TheNode() Who { return Who{Kind: byNode} }

func (e *Event) refused() bool { return e.Outcome != OK }

// stranger reports whether anybody could have caused the event, with a right or without one.
func (e *Event) stranger() bool {
	return e.refused() && (e.Who.Kind == byNobody || e.Outcome == refusal.Unauthorized.String())
}

// encode clips what is too long and writes the line.
func (e *Event) encode() ([]byte, error) {
	for _, text := range []*string{&e.Path, &e.Entity, &e.Reason, &e.Who.Policy, &e.Who.Scope, &e.Who.Subject, &e.Who.Issuer, &e.Action} {
		*text = clip(*text, maxTextBytes)
	}
	e.Agent = clip(e.Agent, maxAgentBytes)
	for name, value := range e.Parameters {
		e.Parameters[name] = clip(value, maxTextBytes)
	}
	line, err := e.line()
	if err == nil && len(line) > maxLineBytes {
		e.Before, e.After, e.Cut = nil, nil, true
		line, err = e.line()
	}
	return append(line, '\n'), err
}

// line is JSON whose texts show as they are: what would move a cursor, or turn the direction of a line, is escaped.
func (e *Event) line() ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil || !bytes.ContainsFunc(line, hidden) {
		return line, err
	}
	shown := make([]byte, 0, len(line)+64)
	for _, r := range string(line) {
		switch {
		case !hidden(r):
			shown = utf8.AppendRune(shown, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			shown = fmt.Appendf(shown, `\u%04x\u%04x`, high, low)
		default:
			shown = fmt.Appendf(shown, `\u%04x`, r)
		}
	}
	return shown, nil
}

// hidden reports whether a rune does not print. JSON has such only inside of texts.
func hidden(r rune) bool { return !unicode.IsPrint(r) }

// clip bounds text that a client wrote.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
