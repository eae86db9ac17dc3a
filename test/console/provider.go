package console

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"
)

// Provider is a small identity provider (OpenID Connect Core 1.0) with a page where somebody says who he is. It knows one
// client, with a secret, and checks each request to the letter.
type Provider struct {
	URL    string
	server *httptest.Server

	mu     sync.Mutex
	back   string         // the redirect address that is registered
	key    *providerKey   // signs now
	next   []*providerKey // sign later, and are shown already, as providers do
	codes  map[string]url.Values
	people map[string][]string // the roles of each
	left   int
}

const (
	providerClient = "busbar-console"
	providerSecret = "a secret of the client: %&+"
	providerScope  = "broker"
	audience       = "api://busbar"
)

type providerKey struct {
	id   string
	jwk  map[string]string
	alg  string
	sign func(sum []byte) ([]byte, error)
}

// NewProvider starts a provider that signs by RSA, and later by ECDSA.
func NewProvider(people map[string][]string) (*Provider, error) {
	p := &Provider{codes: map[string]url.Values{}, people: people}
	var err error
	if p.key, err = newProviderKey("k1", true); err != nil {
		return nil, err
	}
	second, err := newProviderKey("k2", false)
	if err != nil {
		return nil, err
	}
	p.next = []*providerKey{second}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.announce)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.ask)
	mux.HandleFunc("GET /said", p.said)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /leave", p.leave)
	p.server = httptest.NewServer(mux)
	p.URL = p.server.URL
	return p, nil
}

// Close ends the provider.
func (p *Provider) Close() { p.server.Close() }

// Register says where the one client has browsers sent back to.
func (p *Provider) Register(back string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.back = back
}

// Left is how often somebody signed out.
func (p *Provider) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// Rotate signs with the next key from now on, and shows the one before no more.
func (p *Provider) Rotate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.next = p.next[0], p.next[1:]
}

func newProviderKey(id string, byRSA bool) (*providerKey, error) {
	key := &providerKey{id: id, alg: "ES256"}
	if byRSA {
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		key.alg = "RS256"
		key.jwk = map[string]string{"kty": "RSA", "n": text64(private.N.Bytes()), "e": text64(big.NewInt(int64(private.E)).Bytes())}
		key.sign = func(sum []byte) ([]byte, error) { return rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, sum) }
	} else {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		point, err := private.PublicKey.Bytes()
		if err != nil {
			return nil, err
		}
		key.jwk = map[string]string{"kty": "EC", "crv": "P-256", "x": text64(point[1:33]), "y": text64(point[33:])}
		key.sign = func(sum []byte) ([]byte, error) {
			r, s, err := ecdsa.Sign(rand.Reader, private, sum)
			if err != nil {
				return nil, err
			}
			return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), nil
		}
	}
	maps.Copy(key.jwk, map[string]string{"kid": id, "use": "sig", "alg": key.alg})
	return key, nil
}

func text64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func says(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}

func (p *Provider) announce(w http.ResponseWriter, _ *http.Request) {
	says(w, http.StatusOK, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"end_session_endpoint": p.URL + "/leave", "authorization_response_iss_parameter_supported": true, "id_token_signing_alg_values_supported": []string{"RS256", "ES256"}})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []any{p.key.jwk}
	for _, k := range p.next {
		all = append(all, k.jwk)
	}
	says(w, http.StatusOK, map[string]any{"keys": all})
}

var askPage = template.Must(template.New("ask").Parse(`<!doctype html><html lang="en"><title>Provider</title><h1>Who are you?</h1>
<form action="/said">{{range $name, $v := .Form}}<input type="hidden" name="{{$name}}" value="{{index $v 0}}">{{end}}
{{range $name, $roles := .People}}<button name="who" value="{{$name}}">{{$name}}</button>{{end}}<button name="who" value="">Deny</button></form>`))

// ask shows the page of a sign-in, if the request is one of the client.
func (p *Provider) ask(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != providerClient || q.Get("redirect_uri") != p.back || q.Get("scope") != "openid "+providerScope ||
		q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || q.Get("state") == "" || q.Get("nonce") == "" {
		http.Error(w, "this is no request of the client: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = askPage.Execute(w, map[string]any{"Form": q, "People": p.people}) // the browser may be gone
}

// said sends the browser back.
func (p *Provider) said(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	out := url.Values{"state": {q.Get("state")}, "iss": {p.URL}}
	if _, known := p.people[q.Get("who")]; known {
		code := rand.Text()
		p.codes[code] = q
		out.Set("code", code)
	} else {
		out.Set("error", "access_denied")
		out.Set("error_description", "somebody pressed Deny")
	}
	http.Redirect(w, r, p.back+"?"+out.Encode(), http.StatusFound)
}

// token gives tokens for a code, once, to the client that has the secret and the verifier.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, secret, ok := r.BasicAuth()
	if secret, _ = url.QueryUnescape(secret); !ok || name != providerClient || secret != providerSecret {
		says(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	was, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("redirect_uri") != p.back || was.Get("code_challenge") != text64(sum[:]) {
		says(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	who, now := was.Get("who"), time.Now()
	base := map[string]any{"iss": p.URL, "sub": "id of " + who, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	access, id := maps.Clone(base), maps.Clone(base)
	access["aud"], access["roles"] = audience, p.people[who]
	id["aud"], id["nonce"], id["name"] = providerClient, was.Get("nonce"), who
	accessToken, err := p.signed(access)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	idToken, err := p.signed(id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	says(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": accessToken, "id_token": idToken})
}

func (p *Provider) signed(claims map[string]any) (string, error) {
	head, err := json.Marshal(map[string]string{"alg": p.key.alg, "kid": p.key.id})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := text64(head) + "." + text64(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := p.key.sign(sum[:])
	return text + "." + text64(signature), err
}

func (p *Provider) leave(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left++
	fmt.Fprintf(w, "Signed out of %s.", template.HTMLEscapeString(r.URL.Query().Get("client_id")))
}
