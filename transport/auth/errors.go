package auth

import (
	"errors"
	"fmt"
	"time"
)

// Kind is why a token was not accepted.
type Kind uint8

// The kinds of refusal.
const (
	Missing       Kind = 1 + iota // no token at all
	Malformed                     // not a token, or parameters missing, doubled or undecodable
	BadSignature                  // no key of the policy made the signature
	Expired                       // se is further in the past than the tolerance
	UnknownPolicy                 // no policy of that name at the audience's entity or the namespace
	NotSupported                  // a JSON web token, and no issuer is configured
	UnknownIssuer                 // a JSON web token of somebody else
	UnknownKey                    // its issuer is not known to have the key that the token names
	WrongAudience                 // it was issued for another service
	Empty                         // a good JSON web token, whose claims open nothing here
)

// Text is what the client is told. A client cannot tell an unknown policy from a wrong key, so
// names of policies cannot be probed.
func (k Kind) Text() string {
	switch k {
	case Missing:
		return "MissingToken: The authorization header was not found."
	case Malformed:
		return "MalformedToken: The token is malformed."
	case BadSignature, UnknownPolicy, UnknownKey:
		return "InvalidSignature: The token has an invalid signature."
	case UnknownIssuer:
		return "InvalidIssuer: The issuer of the token is not trusted."
	case WrongAudience:
		return "InvalidAudience: The token is for another audience."
	case Expired:
		return "ExpiredToken: The token is expired."
	case Empty:
		return "claim is empty."
	case NotSupported:
		return "MalformedToken: JSON web tokens are not supported, use a shared access signature."
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Error is a refused token. It never holds a key, a signature or the token.
type Error struct {
	Kind   Kind
	Detail string // for the log, not for the client; "" if the kind says it all
	// At is when an Expired token's time was over, which the client is told; zero if nobody knows.
	At time.Time
}

// The refusals, for errors.Is; a detail does not matter in the comparison.
var (
	ErrMissing       = &Error{Kind: Missing}
	ErrMalformed     = &Error{Kind: Malformed}
	ErrBadSignature  = &Error{Kind: BadSignature}
	ErrExpired       = &Error{Kind: Expired}
	ErrUnknownPolicy = &Error{Kind: UnknownPolicy}
	ErrNotSupported  = &Error{Kind: NotSupported}
	ErrUnknownIssuer = &Error{Kind: UnknownIssuer}
	ErrUnknownKey    = &Error{Kind: UnknownKey}
	ErrWrongAudience = &Error{Kind: WrongAudience}
	ErrEmpty         = &Error{Kind: Empty}
)

// Text is what the client is told. The time of an expired token is written as the original writes it:
// live tests of the SDK for Go look for it (RUL-13).
func (e *Error) Text() string {
	if e.Kind == Expired && !e.At.IsZero() {
		return e.Kind.Text() + " Expiration time: '" + e.At.UTC().Format("2006-01-02 15:04:05Z") + "'."
	}
	return e.Kind.Text()
}

// Error returns the client's text followed by the detail.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Text()
	}
	return e.Text() + " (" + e.Detail + ")"
}

// Is reports whether target is a refusal of the same kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// TextOf is what a client is told of an error of [Policies.Verify].
func TextOf(err error) string {
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return refused.Text()
	}
	return "The token is not valid."
}

func malformed(detail string) error { return &Error{Kind: Malformed, Detail: detail} }
