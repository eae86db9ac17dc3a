package suites

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// issuer is an identity provider: it hands out tokens as the identity endpoint of a machine does, and
// tells the keys that they are signed with.
type issuer struct {
	url string
	key ed25519.PrivateKey
}

// tokenLife is how long a token lasts, in seconds: longer than any run.
const tokenLife = 6 * 3600

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		expiry := time.Now().Unix() + tokenLife
		answer(w, map[string]string{
			"access_token": i.token(expiry), "token_type": "Bearer", "client_id": "the-tests",
			"resource": r.URL.Query().Get("resource"), "expires_on": fmt.Sprint(expiry),
			"expires_in": fmt.Sprint(tokenLife),
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "only",
			"x": base64.RawURLEncoding.EncodeToString(public),
		}}})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

// token is a JSON web token (RFC 7519) of somebody who owns the data of the namespace.
func (i *issuer) token(expiry int64) string {
	now := time.Now().Unix()
	text := part(map[string]string{"alg": "EdDSA", "typ": "JWT", "kid": "only"}) + "." + part(map[string]any{
		"iss": i.url, "aud": "https://servicebus.azure.net", "iat": now, "nbf": now - 60, "exp": expiry,
		"sub": "the-tests", "roles": []string{"Azure Service Bus Data Owner"},
	})
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.key, []byte(text)))
}

func part(v any) string {
	b, _ := json.Marshal(v) // maps of strings and numbers can be written
	return base64.RawURLEncoding.EncodeToString(b)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
