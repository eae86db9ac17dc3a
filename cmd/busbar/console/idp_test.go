package console

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	clientID  = "busbar"
	knownBack = "https://" + home + answerPath
)

// idp is an identity provider that takes nothing on trust: it checks each request as RFC 6749, RFC 7636 and OpenID Connect
// Core 1.0 ask for. Its members are what a test spoils.
type idp struct {
	t      *testing.T
	server *httptest.Server
	now    func() time.Time
	secret string // of the client, "" for a public one

	mu      sync.Mutex
	key     *signingKey
	shown   []*signingKey // of the key set
	codes   map[string]url.Values
	refresh string // the one that counts now
	asked   []string
	// what a test spoils
	announce  func(map[string]any)
	claims    func(id, access map[string]any)
	algorithm string
	at        map[string]http.HandlerFunc // takes the place of an answer
	noRefresh bool
}

// signingKey is an RSA or an ECDSA key.
type signingKey struct {
	id string
	crypto.Signer
}

func newKey(t *testing.T, kind, id string) *signingKey {
	t.Helper()
	var key crypto.Signer
	var err error
	if kind == "RSA" {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &signingKey{id, key}
}

func in64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (k *signingKey) jwk() map[string]any {
	switch public := k.Public().(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "kid": k.id, "use": "sig", "alg": "RS256", "n": in64(public.N.Bytes()), "e": in64(big.NewInt(int64(public.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		if err != nil {
			panic(err)
		}
		return map[string]any{"kty": "EC", "kid": k.id, "use": "sig", "alg": "ES256", "crv": "P-256", "x": in64(point[1:33]), "y": in64(point[33:])}
	}
	return nil
}

// sign makes a token; algorithm is that of the key if it is "".
func (k *signingKey) sign(t *testing.T, algorithm string, claims map[string]any) string {
	t.Helper()
	_, isRSA := k.Public().(*rsa.PublicKey)
	if algorithm == "" {
		algorithm = map[bool]string{true: "RS256", false: "ES256"}[isRSA]
	}
	text := in64(marshal(t, map[string]any{"alg": algorithm, "kid": k.id})) + "." + in64(marshal(t, claims))
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	var err error
	switch key := k.Signer.(type) {
	case *rsa.PrivateKey:
		switch algorithm {
		case "none":
		case "HS256": // with the public key as if it were a secret
			mac := hmac.New(sha256.New, marshal(t, k.jwk()))
			mac.Write([]byte(text))
			signature = mac.Sum(nil)
		default:
			signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		}
	case *ecdsa.PrivateKey:
		var r, s *big.Int
		r, s, err = ecdsa.Sign(rand.Reader, key, sum[:])
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + in64(signature)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newIDP(t *testing.T, now func() time.Time) *idp {
	t.Helper()
	p := &idp{t: t, now: now, key: &signingKey{"k1", rsaKey()}, codes: map[string]url.Values{}, at: map[string]http.HandlerFunc{}}
	p.shown = []*signingKey{p.key}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

// change spoils something.
func (p *idp) change(f func(*idp)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

// times is how often a path was asked for.
func (p *idp) times(path string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.asked {
		if one == path {
			n++
		}
	}
	return n
}

func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.URL.Path)
	instead := p.at[r.URL.Path]
	p.mu.Unlock()
	if instead != nil {
		instead(w, r)
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		p.writes(w, http.StatusOK, p.announcement())
	case "/keys":
		p.writes(w, http.StatusOK, json.RawMessage(p.keySet()))
	case "/authorize":
		p.authorize(w, r)
	case "/token":
		p.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (p *idp) writes(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}

func (p *idp) announcement() map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := map[string]any{"issuer": p.server.URL, "authorization_endpoint": p.server.URL + "/authorize", "token_endpoint": p.server.URL + "/token",
		"jwks_uri": p.server.URL + "/keys", "end_session_endpoint": p.server.URL + "/leave?tenant=7", "id_token_signing_alg_values_supported": []string{"RS256", "ES256", "none", "HS256"}}
	if p.announce != nil {
		p.announce(v)
	}
	return v
}

func (p *idp) keySet() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []any{}
	for _, k := range p.shown {
		all = append(all, k.jwk())
	}
	return marshal(p.t, map[string]any{"keys": all})
}

// authorize lets the one user in at once, and sends the browser back.
func (p *idp) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	want := map[string]bool{"response_type": q.Get("response_type") == "code", "client_id": q.Get("client_id") == clientID,
		"redirect_uri": q.Get("redirect_uri") == knownBack, "scope": slices.Contains(strings.Fields(q.Get("scope")), "openid"),
		"code_challenge_method": q.Get("code_challenge_method") == "S256", "code_challenge": len(q.Get("code_challenge")) == 43,
		"state": len(q.Get("state")) >= 43, "nonce": len(q.Get("nonce")) >= 43}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !want[name] || len(q[name]) != 1 {
			http.Error(w, "bad "+name, http.StatusBadRequest)
			return
		}
	}
	code := chance()
	p.change(func(p *idp) { p.codes[code] = q })
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token gives tokens for a code, once, to who has the verifier; or for the refresh token that counts.
func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	no := func(code, why string) {
		p.writes(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": why})
	}
	if r.Method != http.MethodPost || r.ParseForm() != nil || r.URL.RawQuery != "" {
		no("invalid_request", "no form")
		return
	}
	form := r.PostForm
	name, secret, basic := r.BasicAuth()
	if !basic {
		name, secret = form.Get("client_id"), form.Get("client_secret")
	}
	if name != clientID || secret != p.secret || basic && form.Has("client_secret") {
		no("invalid_client", "who are you?")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var nonce string
	switch form.Get("grant_type") {
	case "authorization_code":
		was, known := p.codes[form.Get("code")]
		delete(p.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if !known || was.Get("redirect_uri") != form.Get("redirect_uri") || was.Get("code_challenge") != in64(sum[:]) {
			no("invalid_grant", "the code counts no more")
			return
		}
		nonce = was.Get("nonce")
	case "refresh_token":
		if p.refresh == "" || form.Get("refresh_token") != p.refresh {
			no("invalid_grant", "the refresh token counts no more")
			return
		}
	default:
		no("unsupported_grant_type", "")
		return
	}
	p.writes(w, http.StatusOK, p.tokensLocked(nonce))
}

func (p *idp) tokensLocked(nonce string) map[string]any {
	now := p.now()
	base := map[string]any{"iss": p.server.URL, "sub": "u-17", "iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix()}
	access, id := maps.Clone(base), maps.Clone(base)
	access["aud"], access["scp"] = "https://servicebus.azure.net/", "broker.admin other"
	id["aud"], id["preferred_username"] = clientID, "ada@example.com"
	if nonce != "" {
		id["nonce"] = nonce
	}
	if p.claims != nil {
		p.claims(id, access)
	}
	out := map[string]any{"token_type": "Bearer", "expires_in": 600, "access_token": p.key.sign(p.t, "", access)}
	if given, is := access["opaque"].(string); is {
		out["access_token"] = given
	}
	if _, has := id["at_hash"]; !has {
		sum := sha256.Sum256([]byte(out["access_token"].(string)))
		id["at_hash"] = in64(sum[:16])
	}
	if id["none"] == nil {
		out["id_token"] = p.key.sign(p.t, p.algorithm, id)
	}
	if p.refresh = chance(); p.noRefresh {
		p.refresh = ""
	} else {
		out["refresh_token"] = p.refresh
	}
	return out
}

// visit goes to a place of the provider as a browser does, and returns where it sends the browser.
func (p *idp) visit(to string) *url.URL {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, to, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	back, err := res.Location()
	if err != nil {
		text, _ := io.ReadAll(res.Body)
		p.t.Fatal(fmt.Errorf("%s: %s %s", to, res.Status, text))
	}
	return back
}
