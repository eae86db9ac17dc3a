package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // of RS384 and RS512
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"
)

// Issuer is an OpenID Connect provider whose JSON web tokens are accepted. Its keys come by
// [Policies.SetKeys]: this package opens no connection.
type Issuer struct {
	// Name is the iss of its tokens, to the letter.
	Name string
	// Audiences are those of which a token must have one; a slash at the end does not matter, as
	// clients ask for the scope with one and with two.
	Audiences []string
	// Grants say what the claims of a token open. They add up.
	Grants []Grant
}

// Grant gives rights to the bearers of tokens with a claim.
type Grant struct {
	// Claim is the name of the claim, such as "roles", "scp", "oid"; "" looks in roles, scp and scope.
	Claim string
	// Value is one that the claim must have: a whole text, an item of a list, or a word of a text of
	// several.
	Value string
	// Entity is the path of the entity that the rights are for, "" the whole namespace.
	Entity string
	Rights Right
}

// AzureAudience is what the official clients ask tokens for.
const AzureAudience = "https://servicebus.azure.net"

// AzureRoles returns grants for the three roles of the original, by their names.
func AzureRoles() []Grant {
	return []Grant{
		{Value: "Azure Service Bus Data Owner", Rights: All},
		{Value: "Azure Service Bus Data Sender", Rights: Send},
		{Value: "Azure Service Bus Data Receiver", Rights: Listen},
	}
}

// Bounds of issuers; they are configuration.
const (
	maxIssuers = 16
	maxGrants  = 1000
)

// Validate returns what is wrong with the issuer.
func (i Issuer) Validate() error {
	switch {
	case i.Name == "":
		return errors.New("issuer has no name")
	case len(i.Audiences) == 0 || slices.Contains(i.Audiences, ""):
		return fmt.Errorf("issuer %s has no audience, or an empty one", i.Name)
	case len(i.Grants) == 0 || len(i.Grants) > maxGrants:
		return fmt.Errorf("issuer %s has %d grants, want 1 to %d", i.Name, len(i.Grants), maxGrants)
	}
	for _, g := range i.Grants {
		if g.Value == "" || g.Rights == 0 || g.Rights&^All != 0 {
			return fmt.Errorf("issuer %s has a grant without a value or right", i.Name)
		}
	}
	return nil
}

// issuer is an Issuer with the keys that it has now.
type issuer struct {
	Issuer
	wanted chan struct{} // holds one
	mu     sync.Mutex
	keys   []key
}

// known returns the keys that the issuer has now.
func (i *issuer) known() []key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys
}

// SetKeys replaces the keys of an issuer by a JSON web key set (RFC 7517). On an error nothing
// changes.
func (p *Policies) SetKeys(name string, document []byte) error {
	i := p.issuer(name)
	if i == nil {
		return fmt.Errorf("issuer %s is unknown", name)
	}
	keys, err := parseKeys(document)
	if err != nil {
		return fmt.Errorf("issuer %s: %w", name, err)
	}
	i.mu.Lock()
	i.keys = keys
	i.mu.Unlock()
	return nil
}

// verifyJWT checks a token of three parts. The signature is checked before a claim is believed.
func (p *Policies) verifyJWT(token string, now time.Time) (Claim, error) {
	if !p.hasIssuers() {
		return Claim{}, ErrNotSupported
	}
	signed := token[:strings.LastIndexByte(token, '.')]
	head, body, _ := strings.Cut(signed, ".")
	h, headErr := object(head)
	c, err := object(body)
	if err != nil || headErr != nil {
		return Claim{}, malformed("the token's parts are no JSON in base64url")
	}
	if _, critical := h["crit"]; critical { // an extension that must be understood (RFC 7515 §4.1.11)
		return Claim{}, malformed("the token has a critical extension")
	}
	signature, err := base64.RawURLEncoding.DecodeString(token[len(signed)+1:])
	if err != nil {
		return Claim{}, malformed("the token's signature is not base64url")
	}
	name, _ := c["iss"].(string)
	i := p.issuer(name)
	if i == nil {
		return Claim{}, &Error{Kind: UnknownIssuer, Detail: clipDetail(name)}
	}
	algorithm, _ := h["alg"].(string)
	id, _ := h["kid"].(string)
	if err := i.check(algorithm, id, signed, signature); err != nil {
		if errors.Is(err, ErrUnknownKey) {
			i.askForKeys()
		}
		return Claim{}, err
	}
	return i.claim(c, now, p.late())
}

// object decodes one part of a token. It becomes a map, because names count to the letter: a claim
// AUD that a user may choose must not be taken for aud.
func object(text string) (map[string]any, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	return m, nil
}

// claim turns a token whose signature is good into what it opens (RFC 7519 section 4.1).
func (i *issuer) claim(c map[string]any, now time.Time, skew time.Duration) (Claim, error) {
	if !slices.ContainsFunc(texts(c["aud"]), func(a string) bool {
		return slices.Contains(i.Audiences, strings.TrimRight(a, "/"))
	}) {
		detail := clipDetail(strings.Join(texts(c["aud"]), " "))
		return Claim{}, &Error{Kind: WrongAudience, Detail: detail}
	}
	exp, ok := c["exp"].(float64)
	if !ok {
		return Claim{}, malformed("the token has no exp")
	}
	expires := seconds(exp)
	if !now.Before(expires.Add(skew)) {
		return Claim{}, &Error{Kind: Expired, At: expires}
	}
	if begin, given := c["nbf"]; given {
		n, ok := begin.(float64)
		if !ok || now.Before(seconds(n).Add(-skew)) {
			return Claim{}, &Error{Kind: Expired, Detail: "it begins later"}
		}
	}
	out := Claim{Policy: bearer(c), Issuer: i.Name, issuer: i, Expires: expires, Until: expires.Add(skew)}
	var below []granted
	for _, g := range i.Grants {
		switch {
		case !g.given(c):
		case EntityPath(g.Entity) == "":
			out.Rights |= g.Rights
		default:
			below = append(below, granted{EntityPath(g.Entity), g.Rights})
		}
	}
	if below != nil {
		out.granted = &below
	} else if out.Rights == 0 {
		// Told at once, as the lack of a role: later it would look like that of a right on one entity.
		return Claim{}, &Error{Kind: Empty, Detail: clipDetail(out.Policy)}
	}
	return out, nil
}

// texts reads a claim that is one text or a list.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, item := range v {
			if text, ok := item.(string); ok {
				all = append(all, text)
			}
		}
		return all
	}
	return nil
}

// seconds reads a NumericDate, which may have a fraction.
func seconds(n float64) time.Time {
	if math.IsNaN(n) || n < 0 {
		n = 0
	}
	return time.Unix(int64(min(n, maxExpiry)), 0)
}

// given reports whether a token's claims have what the grant asks for.
func (g Grant) given(claims map[string]any) bool {
	names := []string{g.Claim}
	if g.Claim == "" {
		names = []string{"roles", "scp", "scope"}
	}
	for _, name := range names {
		all := texts(claims[name])
		if text, ok := claims[name].(string); ok {
			all = append(all, strings.Fields(text)...)
		}
		if slices.Contains(all, g.Value) {
			return true
		}
	}
	return false
}

// bearer names who a token was issued to, for the log and for the rate of the subject. A subject that is clipped has a
// digest behind it, so that no two subjects of an issuer have one name.
func bearer(claims map[string]any) string {
	for _, name := range [...]string{"oid", "sub", "appid", "azp", "client_id"} {
		if text, ok := claims[name].(string); ok && text != "" {
			shown := clipDetail(text)
			if shown != text || strings.Contains(text, " #") { // which could pass for a digest
				sum := sha256.Sum256([]byte(text))
				shown += fmt.Sprintf(" #%x", sum[:8])
			}
			return name + ":" + shown
		}
	}
	return "jwt"
}

// clipDetail shortens what a stranger wrote before it goes to the log.
func clipDetail(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text), "")
}

// check finds the key that the header names and checks the signature. Algorithms are those of RFC
// 7518 with public keys: "none" and shared secrets are not among them.
func (i *issuer) check(algorithm, id, signed string, signature []byte) error {
	tried := false
	for _, k := range i.known() {
		if id != "" && k.id != id || k.algorithm != "" && k.algorithm != algorithm {
			continue
		}
		tried = true
		if k.signed(algorithm, signed, signature) {
			return nil
		}
	}
	if !tried {
		return &Error{Kind: UnknownKey, Detail: clipDetail(id + " " + algorithm)}
	}
	return ErrBadSignature
}

func (k key) signed(algorithm, text string, signature []byte) bool {
	if algorithm == "EdDSA" {
		public, ok := k.public.(ed25519.PublicKey)
		return ok && ed25519.Verify(public, []byte(text), signature)
	}
	if len(algorithm) != len("RS256") {
		return false
	}
	var hash crypto.Hash
	switch algorithm[2:] {
	case "256":
		hash = crypto.SHA256
	case "384":
		hash = crypto.SHA384
	case "512":
		hash = crypto.SHA512
	default:
		return false
	}
	h := hash.New()
	h.Write([]byte(text))
	sum := h.Sum(nil)
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		switch algorithm[:2] {
		case "RS":
			return rsa.VerifyPKCS1v15(public, hash, sum, signature) == nil
		case "PS":
			return rsa.VerifyPSS(public, hash, sum, signature,
				&rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
	case *ecdsa.PublicKey:
		size := (public.Curve.Params().BitSize + 7) / 8
		if algorithm[:2] != "ES" || curveOf(algorithm) != public.Curve.Params().BitSize ||
			len(signature) != 2*size {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
		return ecdsa.Verify(public, sum, r, s)
	}
	return false
}

// curveOf is the size of the curve that goes with an algorithm (RFC 7518 section 3.4).
func curveOf(algorithm string) int {
	switch algorithm {
	case "ES256":
		return 256
	case "ES384":
		return 384
	}
	return 521
}

// askForKeys says that a token named a key that its issuer is not known to have.
func (i *issuer) askForKeys() {
	select {
	case i.wanted <- struct{}{}:
	default:
	}
}

// KeysWanted receives when a token named a key that the issuer did not have: its keys may have been changed. The
// caller decides how often they are fetched. The channel of an unknown issuer is nil.
func (p *Policies) KeysWanted(issuer string) <-chan struct{} {
	if i := p.issuer(issuer); i != nil {
		return i.wanted
	}
	return nil
}
