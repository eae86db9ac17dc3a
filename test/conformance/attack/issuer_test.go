package attack

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// keyServer serves sets of keys over real sockets: a good one, and those of issuers that are broken or hostile.
type keyServer struct {
	*httptest.Server
	good, evil *rsa.PrivateKey // evil is the attacker's
	small      *rsa.PrivateKey // too small to count
	fetched    atomic.Int64    // of the good set
	captured   atomic.Int64    // requests where no redirection may lead
	asked      atomic.Int64    // requests for the endless set
	written    atomic.Int64    // the most bytes of the endless set that one request took
	looped     atomic.Int64    // requests to the set that redirects to itself
	over       chan struct{}
}

// badIssuers are the paths of the sets that no key may come from. The slow ones are first: they must not delay the good one.
var badIssuers = []string{"slow", "drops", "endless", "many", "small", "outside", "file", "loop", "error", "text"}

// key is "" or the name of the member "alg".
func jwkOf(public *rsa.PublicKey, id, algorithm string) map[string]string {
	k := map[string]string{"kty": "RSA", "kid": id, "n": base64.RawURLEncoding.EncodeToString(public.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(public.E)).Bytes())}
	if algorithm != "" {
		k["alg"] = algorithm
	}
	return k
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	k := &keyServer{over: make(chan struct{})}
	for key, bits := range map[**rsa.PrivateKey]int{&k.good: 2048, &k.evil: 2048, &k.small: 1024} {
		var err error
		if *key, err = rsa.GenerateKey(rand.Reader, bits); err != nil {
			t.Fatal(err)
		}
	}
	k.Server = httptest.NewServer(http.HandlerFunc(k.serve))
	return k
}

func (k *keyServer) close() {
	close(k.over)
	k.Server.CloseClientConnections()
	k.Server.Close()
}

// serve answers one request for keys.
func (k *keyServer) serve(w http.ResponseWriter, r *http.Request) {
	set := func(keys ...map[string]string) { _ = json.NewEncoder(w).Encode(map[string]any{"keys": keys}) }
	evil := jwkOf(&k.evil.PublicKey, "evil", "")
	switch r.URL.Path {
	case "/good":
		k.fetched.Add(1)
		// The second key says no algorithm, so that only the check of the signature keeps others out.
		set(jwkOf(&k.good.PublicKey, "one", "RS256"), jwkOf(&k.good.PublicKey, "any", ""))
	case "/slow":
		select {
		case <-k.over:
		case <-r.Context().Done():
		}
	case "/drops":
		k.drip(w, r)
	case "/endless":
		k.flood(w)
	case "/many":
		var all []map[string]string
		for i := range 101 {
			all = append(all, jwkOf(&k.evil.PublicKey, fmt.Sprint("evil", i), ""))
		}
		set(append(all, evil)...)
	case "/small":
		set(jwkOf(&k.small.PublicKey, "evil", ""), jwkOf(&k.good.PublicKey, "one", "RS256")) // the others of the set count
	case "/outside": // connects to this server, but is no address of loopback
		_, port, _ := net.SplitHostPort(r.Host)
		http.Redirect(w, r, "http://0.0.0.0:"+port+"/captured", http.StatusFound)
	case "/file":
		http.Redirect(w, r, "file:///etc/hostname", http.StatusFound)
	case "/loop":
		k.looped.Add(1)
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/error":
		w.WriteHeader(http.StatusInternalServerError)
		set(evil)
	case "/text":
		_, _ = w.Write([]byte(strings.Repeat("[", 100_000)))
	default:
		k.captured.Add(1)
		set(evil)
	}
}

// drip sends one byte of a set at a time.
func (k *keyServer) drip(w http.ResponseWriter, r *http.Request) {
	for {
		if _, err := w.Write([]byte(" ")); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-k.over:
			return
		case <-r.Context().Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// flood sends a set that does not end, 64 MiB at most.
func (k *keyServer) flood(w http.ResponseWriter) {
	k.asked.Add(1)
	_, _ = w.Write([]byte(`{"keys":[{"kty":"RSA","kid":"`))
	sent, block := 0, []byte(strings.Repeat("x", 64<<10))
	for sent < 64<<20 {
		n, err := w.Write(block)
		sent += n
		if err != nil {
			break
		}
	}
	for old := k.written.Load(); int64(sent) > old && !k.written.CompareAndSwap(old, int64(sent)); old = k.written.Load() {
	}
}

// settings is the list of issuers for the file of a node.
func (k *keyServer) settings() string {
	text := "issuers:\n"
	for _, name := range append(append([]string{}, badIssuers...), "good") {
		text += fmt.Sprintf("  - name: https://issuer.test/%s\n    audiences: [\"%s\"]\n    keys: %s/%s\n", name, tokenAudience, k.URL, name)
	}
	return text
}

const tokenAudience = "https://servicebus.azure.net"

// claims returns those of a good token of an issuer, with changes: names and values in turns; nil takes a claim out.
func claims(issuer string, change ...any) map[string]any {
	now := time.Now()
	c := map[string]any{"iss": "https://issuer.test/" + issuer, "aud": tokenAudience, "oid": "attacker",
		"roles": []string{"Azure Service Bus Data Owner"},
		"iat":   now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix()}
	for i := 0; i < len(change); i += 2 {
		c[change[i].(string)] = change[i+1]
		if change[i+1] == nil {
			delete(c, change[i].(string))
		}
	}
	return c
}

// part is one part of a token.
func part(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// rs256 signs a token with an RSA key.
func rs256(key *rsa.PrivateKey, header map[string]any, body map[string]any) string {
	text := part(header) + "." + part(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// hs256 signs a token with a shared secret.
func hs256(secret []byte, header map[string]any, body map[string]any) string {
	text := part(header) + "." + part(body)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// publicForms are the ways in which a public key is written, each of which somebody has taken for a secret.
func publicForms(key *rsa.PublicKey) map[string][]byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"DER": der, "PKCS 1": x509.MarshalPKCS1PublicKey(key), "modulus": key.N.Bytes(),
		"PEM":                  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"PEM without line end": []byte(strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))),
		"modulus as text":      []byte(base64.RawURLEncoding.EncodeToString(key.N.Bytes())),
	}
}
