package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MaxTokenBytes bounds a token before it is parsed. The longest real ones hold a request's URL with
// a name of 260 characters, encoded twice.
const MaxTokenBytes = 16 << 10

// maxPathBytes bounds the audience's path, as every segment of it is a place to look for a policy.
// A rule's path, the longest there is, has 260+50+50 characters and two words in between.
const maxPathBytes = 1024

const sasPrefix = "SharedAccessSignature "

// maxExpiry is the end of the year 9999 in Unix seconds; a later se is taken as that, so that no
// date arithmetic overflows.
const maxExpiry = 253402300799

// NewToken makes a shared access signature for audience, usually a URL such as "sb://host/queue".
func NewToken(audience, policy, key string, expiry time.Time) string {
	sr := url.QueryEscape(audience)
	se := strconv.FormatInt(expiry.Unix(), 10)
	sig := base64.StdEncoding.EncodeToString(sign(Secret(key), sr, se))
	return sasPrefix + "sr=" + sr + "&sig=" + url.QueryEscape(sig) + "&se=" + se +
		"&skn=" + url.QueryEscape(policy)
}

// Verify checks a token as it stands in an Authorization header or in a put-token body. Every error is an [*Error].
// The announced type of the token is not asked for: clients announce "jwt" and send a shared access signature, so the
// content decides.
func (p *Policies) Verify(token string, now time.Time) (Claim, error) {
	token = strings.TrimSpace(token)
	if token == "" {
		return Claim{}, ErrMissing
	}
	if len(token) > MaxTokenBytes {
		return Claim{}, malformed("longer than " + strconv.Itoa(MaxTokenBytes) + " bytes")
	}
	if rest, ok := cutPrefixFold(token, "Bearer "); ok {
		token = strings.TrimSpace(rest)
	}
	text, ok := cutPrefixFold(token, sasPrefix)
	switch {
	case ok:
	case isJWT(token):
		return p.verifyJWT(token, now)
	default:
		return Claim{}, malformed("neither a shared access signature nor a JSON web token")
	}
	t, err := p.parse(text)
	if err != nil {
		return Claim{}, err
	}
	return p.verify(t, now)
}

// verify tries every policy of the token's name on the way from the entity to the namespace. An entity's policy does
// not hide the namespace's policy of the same name.
func (p *Policies) verify(t signature, now time.Time) (Claim, error) {
	candidates := p.reaching(t.path, t.policy)
	if len(candidates) == 0 {
		// Spend the time of one comparison, so that an unknown name does not answer sooner.
		_ = t.signedBy(redacted)
		return Claim{}, ErrUnknownPolicy
	}
	for _, c := range candidates {
		// Both keys are always tried, so the time does not tell which one fits.
		primary := t.signedBy(c.policy.Primary)
		secondary := t.signedBy(c.policy.Secondary) && c.policy.Secondary != ""
		if !primary && !secondary {
			continue
		}
		until := t.expires.Add(p.late())
		if !now.Before(until) {
			return Claim{}, &Error{Kind: Expired, At: t.expires}
		}
		key := c.policy.Primary
		if !primary {
			key = c.policy.Secondary
		}
		return Claim{
			Policy: t.policy, Scope: c.scope, Audience: t.path,
			Expires: t.expires, Until: until, Rights: c.policy.Rights, key: p.markOf(key),
		}, nil
	}
	return Claim{}, ErrBadSignature
}

// VerifyPlain checks a policy's name and key as SASL PLAIN carries them. The claim reaches as far
// as the policy and does not expire. If several entities have a policy of this name and key, the claim
// opens each of them.
func (p *Policies) VerifyPlain(name, key string) (Claim, error) {
	if name == "" && key == "" {
		return Claim{}, ErrMissing
	}
	if key == "" || len(key) > MaxKeyBytes || len(name) > MaxPolicyNameBytes {
		return Claim{}, malformed("name or key of an impossible length")
	}
	candidates := p.named(name)
	if len(candidates) == 0 {
		return Claim{}, ErrUnknownPolicy
	}
	var claim Claim
	var more []granted
	for _, c := range candidates {
		if !sameKey(c.policy.Primary, key) && !sameKey(c.policy.Secondary, key) {
			continue
		}
		if claim.Rights == 0 {
			claim = Claim{Policy: name, Scope: c.scope, Audience: c.scope, Rights: c.policy.Rights, key: p.markOf(Secret(key))}
			continue
		}
		more = append(more, granted{c.scope, c.policy.Rights})
	}
	if claim.Rights == 0 {
		return Claim{}, ErrBadSignature
	}
	if more != nil {
		claim.Audience, claim.granted = "", &more
	}
	return claim, nil
}

// sameKey compares digests, so that not even the length of the key shows in the time.
func sameKey(want Secret, got string) bool {
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}

// signature is a parsed token. sr and se stay as they were sent, because that is what was signed:
// every SDK encodes and cases the audience in its own way.
type signature struct {
	sr, se  string
	path    string
	policy  string
	sig     []byte
	expires time.Time
}

func (p *Policies) parse(text string) (signature, error) {
	raw, err := parameters(text)
	if err != nil {
		return signature{}, err
	}
	t := signature{sr: raw["sr"], se: raw["se"]}
	if t.policy, err = url.PathUnescape(raw["skn"]); err != nil {
		return signature{}, malformed("skn is not percent-encoded")
	}
	if t.expires, err = expiry(t.se); err != nil {
		return signature{}, err
	}
	sig, err := url.PathUnescape(raw["sig"]) // a plus sign that was not encoded stays one
	if err != nil {
		return signature{}, malformed("sig is not percent-encoded")
	}
	if t.sig, err = base64.StdEncoding.DecodeString(sig); err != nil {
		return signature{}, malformed("sig is not base64")
	}
	audience, err := url.QueryUnescape(t.sr)
	if err != nil {
		return signature{}, malformed("sr is not percent-encoded")
	}
	if t.path, err = p.audiencePath(audience); err != nil {
		return signature{}, err
	}
	if len(t.path) > maxPathBytes {
		return signature{}, malformed("sr holds a path longer than any entity's")
	}
	return t, nil
}

// parameters splits the four parameters in any order. Unknown ones are ignored; a doubled one is an
// error, as two readers could disagree on which counts.
func parameters(text string) (map[string]string, error) {
	found := make(map[string]string, 4)
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case "sr", "sig", "se", "skn":
		default:
			continue
		}
		if _, twice := found[name]; twice {
			return nil, malformed(name + " is given twice")
		}
		found[name] = value
	}
	for _, name := range [...]string{"sr", "sig", "se", "skn"} {
		if found[name] == "" {
			return nil, malformed(name + " is missing")
		}
	}
	return found, nil
}

func expiry(se string) (time.Time, error) {
	seconds, err := strconv.ParseUint(se, 10, 64)
	if err != nil {
		return time.Time{}, malformed("se is no number of Unix seconds")
	}
	return time.Unix(int64(min(seconds, maxExpiry)), 0), nil
}

// signedBy reports whether key made the signature, in constant time.
func (t signature) signedBy(key Secret) bool {
	return hmac.Equal(t.sig, sign(key, t.sr, t.se))
}

// sign takes the key as text: it is not base64-decoded, even where it looks so.
func sign(key Secret, sr, se string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(sr))
	mac.Write([]byte{'\n'})
	mac.Write([]byte(se))
	return mac.Sum(nil)
}

// isJWT reports whether the token has the three parts of a JSON web token.
func isJWT(token string) bool {
	parts := 0
	for part := range strings.SplitSeq(token, ".") {
		if part == "" && parts < 2 {
			return false
		}
		if _, err := base64.RawURLEncoding.DecodeString(part); err != nil {
			return false
		}
		parts++
	}
	return parts == 3
}

func cutPrefixFold(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return text, false
	}
	return text[len(prefix):], true
}
