package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"
)

var b64 = base64.RawURLEncoding

// signer is an issuer in a test: a key pair of each kind, and its public half as a key set.
type signer struct {
	rsa     *rsa.PrivateKey
	ec      *ecdsa.PrivateKey
	ec384   *ecdsa.PrivateKey
	edwards ed25519.PrivateKey
}

// newSigner makes keys once for all tests: RSA keys take their time.
var newSigner = sync.OnceValue(func() *signer {
	s := new(signer)
	var errs [4]error
	s.rsa, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
	s.ec, errs[1] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.ec384, errs[2] = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, s.edwards, errs[3] = ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(errs[:]...); err != nil {
		panic(err)
	}
	return s
})

func (s *signer) keys(t testing.TB) []byte {
	t.Helper()
	point := func(k *ecdsa.PrivateKey) (x, y string) {
		b, err := k.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := len(b) / 2
		return b64.EncodeToString(b[1 : 1+half]), b64.EncodeToString(b[1+half:])
	}
	x, y := point(s.ec)
	x3, y3 := point(s.ec384)
	set := map[string]any{"keys": []any{
		map[string]any{"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
		map[string]any{"kty": "RSA", "kid": "enc", "use": "enc", "n": "x"},
		map[string]any{"kty": "RSA", "kid": "r", "use": "sig", "n": b64.EncodeToString(s.rsa.N.Bytes()),
			"e": b64.EncodeToString(big.NewInt(int64(s.rsa.E)).Bytes())},
		map[string]any{"kty": "EC", "kid": "e", "crv": "P-256", "x": x, "y": y},
		map[string]any{"kty": "EC", "kid": "e3", "alg": "ES384", "crv": "P-384", "x": x3, "y": y3},
		map[string]any{"kty": "OKP", "kid": "d", "crv": "Ed25519",
			"x": b64.EncodeToString(s.edwards.Public().(ed25519.PublicKey))},
		map[string]any{"kty": "OKP", "kid": "x", "crv": "X25519", "x": "AA"},
	}}
	b, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sign makes a token; the algorithm says with which key.
func (s *signer) sign(t testing.TB, header, claims map[string]any) string {
	t.Helper()
	h, err1 := json.Marshal(header)
	c, err2 := json.Marshal(claims)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	text := b64.EncodeToString(h) + "." + b64.EncodeToString(c)
	algorithm, _ := header["alg"].(string)
	hash := crypto.SHA256
	switch {
	case strings.HasSuffix(algorithm, "384"):
		hash = crypto.SHA384
	case strings.HasSuffix(algorithm, "512"):
		hash = crypto.SHA512
	}
	sum := hash.New()
	sum.Write([]byte(text))
	digest := sum.Sum(nil)
	var sig []byte
	var err error
	switch {
	case strings.HasPrefix(algorithm, "RS"):
		sig, err = rsa.SignPKCS1v15(rand.Reader, s.rsa, hash, digest)
	case strings.HasPrefix(algorithm, "PS"):
		sig, err = rsa.SignPSS(rand.Reader, s.rsa, hash, digest,
			&rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	case algorithm == "ES256", algorithm == "ES384":
		private := s.ec
		if algorithm == "ES384" {
			private = s.ec384
		}
		var r, v *big.Int
		r, v, err = ecdsa.Sign(rand.Reader, private, digest)
		size := private.Curve.Params().BitSize / 8
		if err == nil {
			sig = append(r.FillBytes(make([]byte, size)), v.FillBytes(make([]byte, size))...)
		}
	case algorithm == "EdDSA":
		sig = ed25519.Sign(s.edwards, []byte(text))
	case algorithm == "HS256":
		mac := hmac.New(sha256.New, s.rsa.N.Bytes())
		mac.Write([]byte(text))
		sig = mac.Sum(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64.EncodeToString(sig)
}

const testIssuer = "https://issuer.test/v2.0"

func jwtPolicies(t testing.TB) (*Policies, *signer) {
	t.Helper()
	p, err := New(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s := newSigner()
	grants := append(AzureRoles(), Grant{Value: "bus.send", Entity: "/Orders/", Rights: Send},
		Grant{Claim: "oid", Value: "worker", Entity: "jobs", Rights: All})
	if err := errors.Join(
		p.AddIssuer(Issuer{Name: testIssuer, Audiences: []string{AzureAudience, "api://bus/"}, Grants: grants}),
		p.AddIssuer(Issuer{Name: "https://other.test", Audiences: []string{"x"}, Grants: grants}),
		p.SetKeys(testIssuer, s.keys(t)),
	); err != nil {
		t.Fatal(err)
	}
	return p, s
}

var jwtNow = time.Unix(1_800_000_000, 0)

// claims returns good claims with changes; a nil value removes one.
func claims(changes ...any) map[string]any {
	c := map[string]any{
		"iss": testIssuer, "aud": AzureAudience + "/", "exp": jwtNow.Unix() + 600,
		"nbf": jwtNow.Unix() - 600, "roles": []string{"Azure Service Bus Data Owner"}, "oid": "someone",
	}
	for i := 0; i < len(changes); i += 2 {
		if c[changes[i].(string)] = changes[i+1]; changes[i+1] == nil {
			delete(c, changes[i].(string))
		}
	}
	return c
}

func header(algorithm, id string) map[string]any {
	return map[string]any{"alg": algorithm, "kid": id, "typ": "JWT"}
}

func TestJWTAlgorithms(t *testing.T) {
	p, s := jwtPolicies(t)
	for _, h := range []map[string]any{
		header("RS256", "r"), header("RS384", "r"), header("RS512", "r"), header("PS256", "r"),
		header("PS384", "r"), header("PS512", "r"), header("ES256", "e"), header("ES384", "e3"),
		header("EdDSA", "d"), {"alg": "RS256"},
	} {
		for _, prefix := range []string{"", "Bearer ", "bearer  "} {
			claim, err := p.Verify(prefix+s.sign(t, h, claims()), jwtNow)
			if err != nil || claim.Policy != "oid:someone" || claim.Issuer != testIssuer || claim.Rights != All || claim.Scope != "" {
				t.Errorf("%v: %+v, %v", h, claim, err)
			}
			if !claim.ExpiredAt(jwtNow.Add(661*time.Second)) || claim.ExpiredAt(jwtNow.Add(659*time.Second)) {
				t.Errorf("until %v", claim.Until)
			}
		}
	}
}

// Who pays for a rate is told apart by the whole subject, though names are shortened for the log and lose what a log cannot
// show.
func TestJWTSubjectsThatLookAlikeAreApart(t *testing.T) {
	p, s := jwtPolicies(t)
	long := strings.Repeat("a", 100)
	seen := map[string]string{}
	for _, subject := range []string{"someone", "some\x01one", "some\x02one", long, long + "b", long + "c", "someone #3a1f"} {
		claim, err := p.Verify(s.sign(t, header("RS256", "r"), claims("oid", subject)), jwtNow)
		if err != nil || len(claim.Policy) > 130 {
			t.Fatalf("%q: %+v, %v", subject, claim, err)
		}
		if other, there := seen[claim.Policy]; there {
			t.Errorf("%q and %q are both %q", subject, other, claim.Policy)
		}
		seen[claim.Policy] = subject
	}
	odd, err := p.Verify(s.sign(t, header("RS256", "r"), claims("oid", "some\x01one")), jwtNow)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.TrimPrefix(odd.Policy, "oid:") // a subject of its own, which is shown with a digest, too
	claim, err := p.Verify(s.sign(t, header("RS256", "r"), claims("oid", shown)), jwtNow)
	if err != nil || claim.Policy == odd.Policy {
		t.Errorf("%q passes for another one: %+v, %v", shown, claim, err)
	}
	if seen["oid:someone"] != "someone" || seen["oid:"+long] != long {
		t.Errorf("short names have changed: %v", seen)
	}
}

func TestJWTRefusals(t *testing.T) {
	p, s := jwtPolicies(t)
	good := s.sign(t, header("RS256", "r"), claims())
	parts := strings.Split(good, ".")
	forged := b64.EncodeToString([]byte(`{"iss":"` + testIssuer + `","aud":"` + AzureAudience +
		`","exp":9999999999,"roles":["Azure Service Bus Data Owner"]}`))
	signed := func(h map[string]any, changes ...any) string { return s.sign(t, h, claims(changes...)) }
	r := header("RS256", "r")
	for name, tc := range map[string]struct {
		token string
		want  error
	}{
		"no signature":             {parts[0] + "." + parts[1] + ".", ErrBadSignature},
		"alg none":                 {b64.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", ErrBadSignature},
		"a public key as a secret": {signed(header("HS256", "r")), ErrBadSignature},
		"other claims":             {parts[0] + "." + forged + "." + parts[2], ErrBadSignature},
		"a key of another kind":    {signed(header("ES256", "r")), ErrBadSignature},
		"a curve of another size":  {signed(header("ES384", "e")), ErrBadSignature},
		"an algorithm that the key is not for": {
			signed(header("ES256", "e3")), ErrUnknownKey,
		},
		"an unknown key":         {signed(header("RS256", "new")), ErrUnknownKey},
		"an encryption key":      {signed(header("RS256", "enc")), ErrUnknownKey},
		"a critical extension":   {signed(map[string]any{"alg": "RS256", "kid": "r", "crit": []string{"b64"}}), ErrMalformed},
		"an unknown issuer":      {signed(r, "iss", "https://evil.test"), ErrUnknownIssuer},
		"no issuer":              {signed(r, "iss", nil), ErrUnknownIssuer},
		"an issuer without keys": {signed(r, "iss", "https://other.test"), ErrUnknownKey},
		"another audience":       {signed(r, "aud", "https://storage.test"), ErrWrongAudience},
		"no audience":            {signed(r, "aud", nil), ErrWrongAudience},
		"AUD is not aud":         {signed(r, "aud", "x", "AUD", AzureAudience), ErrWrongAudience},
		"expired":                {signed(r, "exp", jwtNow.Unix()-60), ErrExpired},
		"no expiry":              {signed(r, "exp", nil), ErrMalformed},
		"an expiry in words":     {signed(r, "exp", "tomorrow"), ErrMalformed},
		"not yet":                {signed(r, "nbf", jwtNow.Unix()+61), ErrExpired},
		"a beginning in words":   {signed(r, "nbf", "yesterday"), ErrExpired},
		"claims that are a list": {parts[0] + "." + b64.EncodeToString([]byte("[]")) + "." + parts[2], ErrMalformed},
		"a header that is text":  {b64.EncodeToString([]byte(`"x"`)) + "." + parts[1] + "." + parts[2], ErrMalformed},
		"too long":               {good + strings.Repeat("A", MaxTokenBytes), ErrMalformed},
	} {
		claim, err := p.Verify(tc.token, jwtNow)
		if !errors.Is(err, tc.want) || claim != (Claim{}) {
			t.Errorf("%s: %+v, %v", name, claim, err)
		}
	}
	for name, token := range map[string]string{
		"expired less than the tolerance": signed(r, "exp", jwtNow.Unix()-59),
		"a beginning within it":           signed(r, "nbf", jwtNow.Unix()+59),
		"no beginning":                    signed(r, "nbf", nil),
		"an audience in a list":           signed(r, "aud", []string{"x", "api://bus"}),
		"two slashes":                     signed(r, "aud", AzureAudience+"//"),
		"a fraction of a second":          signed(r, "exp", float64(jwtNow.Unix())+0.5),
		"a far expiry":                    signed(r, "exp", 1e300),
	} {
		if _, err := p.Verify(token, jwtNow); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the claims of a token open.
func TestJWTGrants(t *testing.T) {
	p, s := jwtPolicies(t)
	for name, tc := range map[string]struct {
		changes []any
		allowed []string // "right path"
		refused []string
	}{
		"the owner": {nil, []string{"7 ", "7 q", "7 a/subscriptions/b"}, nil},
		"a sender": {
			[]any{"roles", []string{"x", "Azure Service Bus Data Sender"}},
			[]string{"1 q"}, []string{"2 q", "4 q", "4 "},
		},
		"a receiver, in words of a scope": {
			[]any{"roles", nil, "scp", "openid bus.send"},
			[]string{"1 orders", "1 ORDERS/$management"}, []string{"1 q", "2 orders", "1 "},
		},
		"grants add up": {
			[]any{"roles", "Azure Service Bus Data Receiver", "scope", "bus.send", "oid", "worker"},
			[]string{"2 q", "3 orders", "7 jobs", "7 jobs/subscriptions/s"}, []string{"1 q", "4 orders", "4 "},
		},
	} {
		claim, err := p.Verify(s.sign(t, header("RS256", "r"), claims(tc.changes...)), jwtNow)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check := func(text string, want bool) {
			if got := claim.Allows(text[2:], Right(text[0]-'0')); got != want {
				t.Errorf("%s: %q is %t", name, text, got)
			}
		}
		for _, text := range tc.allowed {
			check(text, true)
		}
		for _, text := range tc.refused {
			check(text, false)
		}
		if claim.OnNamespace(Manage) != (name == "the owner") {
			t.Errorf("%s: the namespace is open: %t", name, claim.OnNamespace(Manage))
		}
	}
}

// A token whose claims open nothing is refused as one, and not operation by operation.
func TestJWTWithoutAnyRightIsEmpty(t *testing.T) {
	p, s := jwtPolicies(t)
	for name, roles := range map[string]any{
		"no role": nil, "roles of another type": 5, "a part of a role": "Azure Service Bus Data",
		"somebody else's role": []string{"Storage Blob Data Owner"},
	} {
		claim, err := p.Verify(s.sign(t, header("RS256", "r"), claims("roles", roles)), jwtNow)
		if !errors.Is(err, ErrEmpty) || claim != (Claim{}) || TextOf(err) != "claim is empty." {
			t.Errorf("%s: %+v, %v", name, claim, err)
		}
	}
}

// An issuer changes its keys: tokens of the new one are refused until they are fetched, and the lack
// is told.
func TestJWTKeysAreReplaced(t *testing.T) {
	p, s := jwtPolicies(t)
	token := s.sign(t, header("RS256", "r2"), claims())
	if _, err := p.Verify(token, jwtNow); !errors.Is(err, ErrUnknownKey) {
		t.Fatal(err)
	}
	select {
	case <-p.KeysWanted(testIssuer):
	default:
		t.Error("nobody asks for the new keys")
	}
	renamed := strings.ReplaceAll(string(s.keys(t)), `"kid":"r"`, `"kid":"r2"`)
	if err := p.SetKeys(testIssuer, []byte(renamed)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(token, jwtNow); err != nil {
		t.Error(err)
	}
	if _, err := p.Verify(s.sign(t, header("RS256", "r"), claims()), jwtNow); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a key that was taken away: %v", err)
	}
}

// An issuer is given other grants: its keys are the same, so nobody has to wait until they are fetched again. What was
// granted before does not stand.
func TestAnIssuerWithOtherGrantsKeepsItsKeys(t *testing.T) {
	p, s := jwtPolicies(t)
	token := s.sign(t, header("RS256", "r"), claims())
	before, err := p.Verify(token, jwtNow)
	if err != nil {
		t.Fatal(err)
	}
	grants := append(AzureRoles(), Grant{Value: "more", Rights: Send})
	if err := p.ReplaceIssuers([]Issuer{{Name: testIssuer, Audiences: []string{AzureAudience}, Grants: grants}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(token, jwtNow); err != nil {
		t.Error(err)
	}
	if p.Stands(before) {
		t.Error("a claim of the old grants stands")
	}
}

// RFC 7517 section 5: a key that nothing here can use does not spoil the others of its set.
func TestAKeyThatIsOfNoUseSpoilsNoOther(t *testing.T) {
	p, s := jwtPolicies(t)
	small := b64.EncodeToString(append([]byte{0x80}, make([]byte, 127)...))
	for name, other := range map[string]string{
		"1024 bits":        `{"kty":"RSA","kid":"small","n":"` + small + `","e":"AQAB"}`,
		"without a number": `{"kty":"RSA","kid":"none"}`,
		"a point off curve": `{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` +
			strings.Repeat("A", 43) + `"}`,
	} {
		renamed := strings.ReplaceAll(string(s.keys(t)), `"kid":"r"`, `"kid":"r `+name+`"`)
		if err := p.SetKeys(testIssuer, []byte(strings.Replace(renamed, "[", "["+other+",", 1))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.Verify(s.sign(t, header("RS256", "r "+name), claims()), jwtNow); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadKeySetsAreRefusedAndChangeNothing(t *testing.T) {
	p, s := jwtPolicies(t)
	small := b64.EncodeToString(append([]byte{0x80}, make([]byte, 127)...))
	for name, set := range map[string]string{
		"nothing":            ``,
		"no keys":            `{"keys":[]}`,
		"no list":            `{"keys":5}`,
		"only shared keys":   `{"keys":[{"kty":"oct"}]}`,
		"1024 bits":          `{"keys":[{"kty":"RSA","n":"` + small + `","e":"AQAB"}]}`,
		"no exponent":        `{"keys":[{"kty":"RSA","n":"` + strings.Repeat("v", 344) + `","e":""}]}`,
		"an even exponent":   `{"keys":[{"kty":"RSA","n":"` + strings.Repeat("v", 342) + `","e":"BA"}]}`,
		"a point off curve":  `{"keys":[{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}]}`,
		"a short coordinate": `{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`,
		"a short Edwards":    `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`,
		"too many":           `{"keys":[` + strings.Repeat(`{},`, 100) + `{}]}`,
		"too long":           strings.Repeat(" ", MaxKeySetBytes+1),
	} {
		if err := p.SetKeys(testIssuer, []byte(set)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := p.Verify(s.sign(t, header("RS256", "r"), claims()), jwtNow); err != nil {
		t.Error(err)
	}
	if err := p.SetKeys("https://nobody.test", s.keys(t)); err == nil {
		t.Error("an unknown issuer has keys")
	}
}

func TestBadIssuersAreRefused(t *testing.T) {
	p, _ := jwtPolicies(t)
	grant := []Grant{{Value: "x", Rights: Send}}
	for name, i := range map[string]Issuer{
		"no name":           {Audiences: []string{"a"}, Grants: grant},
		"no audience":       {Name: "i", Grants: grant},
		"an empty audience": {Name: "i", Audiences: []string{""}, Grants: grant},
		"no grant":          {Name: "i", Audiences: []string{"a"}},
		"no right":          {Name: "i", Audiences: []string{"a"}, Grants: []Grant{{Value: "x"}}},
		"no value":          {Name: "i", Audiences: []string{"a"}, Grants: []Grant{{Rights: Send}}},
		"twice":             {Name: testIssuer, Audiences: []string{"a"}, Grants: grant},
	} {
		if err := p.AddIssuer(i); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for n := range maxIssuers {
		_ = p.AddIssuer(Issuer{Name: fmt.Sprint(n), Audiences: []string{"a"}, Grants: grant})
	}
	if err := p.AddIssuer(Issuer{Name: "one more", Audiences: []string{"a"}, Grants: grant}); err == nil {
		t.Error("there is no end of issuers")
	}
}

func FuzzJWT(f *testing.F) {
	p, s := jwtPolicies(f)
	f.Add(s.sign(f, header("RS256", "r"), claims()))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("a.b.c")
	good := s.sign(f, header("RS256", "r"), claims())
	signed := good[:strings.LastIndexByte(good, '.')]
	f.Fuzz(func(t *testing.T, token string) {
		claim, err := p.Verify(token, jwtNow)
		if err == nil && !strings.Contains(token, signed) && claim.Rights != 0 {
			t.Fatalf("%q opens %v", token, claim.Rights)
		}
	})
}
