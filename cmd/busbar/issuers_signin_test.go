package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/transport/auth"
)

// loadSignIn reads a configuration with a sign-in at an issuer.
func loadSignIn(t *testing.T, issuer, signIn string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "busbar.yaml")
	text := "root-key: abcdefgh\ndata-dir: " + t.TempDir() + "\nallowed-hosts: [console.example.com]\nissuers:\n- {name: '" + issuer + "', audiences: [busbar], sign-in: {" + signIn + "}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(file, nil, environment(nil))
}

// Where people sign in is judged by config check: each mistake is named with its cure.
func TestMistakesInSignIn(t *testing.T) {
	const issuer = "https://login.example.com/tenant"
	long := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(long, make([]byte, maxClientSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ issuer, signIn, want string }{
		"no name of the client":        {issuer, "label: x", "client-id is not set: it is the name of this broker at the issuer"},
		"a token that is none":         {issuer, "client-id: busbar, token: refresh", `token is "refresh", want access or id`},
		"an audience that lacks":       {issuer, "client-id: other, token: id", `token is id, so audiences must have the client-id "other", which is the audience of an ID token`},
		"a secret that is not there":   {issuer, "client-id: busbar, client-secret-file: /nowhere", "client-secret-file: open /nowhere"},
		"a secret that is empty":       {issuer, "client-id: busbar, client-secret-file: /dev/null", "client-secret-file /dev/null has 0 bytes, want 1 to 4096"},
		"a secret that is long":        {issuer, "client-id: busbar, client-secret-file: " + long, "has 4097 bytes, want 1 to 4096"},
		"an address without TLS":       {issuer, "client-id: busbar, address: 'http://console.example.com'", `address is "http://console.example.com", want https://HOST:PORT, or http on loopback`},
		"an address with a path":       {issuer, "client-id: busbar, address: 'https://console.example.com/x'", `address is "https://console.example.com/x", want`},
		"an address with a query":      {issuer, "client-id: busbar, address: 'https://console.example.com?x'", `address is "https://console.example.com?x", want`},
		"an address that is elsewhere": {issuer, "client-id: busbar, address: 'https://evil.example.com'", `address is "https://evil.example.com", whose host is no name of this node: add it to allowed-hosts`},
		"an issuer without a place":    {"login", "client-id: busbar", `"login" is neither https, nor http on loopback`},
		"an issuer that is almost one": {"http://127.0.0.1.evil.example.com", "client-id: busbar", `"http://127.0.0.1.evil.example.com" is neither https, nor http on loopback`},
		"an unknown setting":           {issuer, "client-id: busbar, client-secret: x", "client-secret"},
	} {
		if _, err := loadSignIn(t, c.issuer, c.signIn); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// What is not said is filled in.
func TestASignInIsFilledIn(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := loadSignIn(t, "https://login.example.com/tenant", "client-id: busbar, scopes: [api], address: 'https://console.example.com/', client-secret-file: "+secret)
	if err != nil {
		t.Fatal(err)
	}
	all, err := signInProviders(cfg.Issuers)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	p := all[0]
	if p.Label != "login.example.com" || !reflect.DeepEqual(p.Scopes, []string{"openid", "api"}) || p.Address != "https://console.example.com" || p.IDToken {
		t.Errorf("%+v", p)
	}
	for _, want := range []string{"one", "two"} { // a secret that changes counts at once
		if got, err := p.Secret(); got != want || err != nil {
			t.Errorf("%q %v, want %q", got, err, want)
		}
		if err := os.WriteFile(secret, []byte("two"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cfg, err = loadSignIn(t, "https://login.example.com", "client-id: busbar, token: id, label: '"+strings.Repeat("ä", maxLabel)+"'"); err != nil {
		t.Fatal(err)
	}
	all, err = signInProviders(cfg.Issuers)
	if err != nil || len(all) != 1 || !all[0].IDToken || all[0].Label != strings.Repeat("ä", maxLabel/2) || !reflect.DeepEqual(all[0].Scopes, []string{"openid", "profile"}) || all[0].Secret != nil {
		t.Errorf("%+v %v", all, err)
	}
}

// The node asks a provider at safe places alone, is sent nowhere, and reads no more than it must.
func TestProvidersAreAskedWithCare(t *testing.T) {
	elsewhere := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/elsewhere":
			elsewhere++
		default:
			_, _ = w.Write(make([]byte, 2*auth.MaxKeySetBytes)) // the client reads half
		}
	}))
	t.Cleanup(s.Close)
	client := newProviderClient()
	if client.Timeout != keysTimeout {
		t.Errorf("the client waits for %v", client.Timeout)
	}
	ask := func(place string) (int, int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, strings.NewReader("code=x"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			return 0, 0, err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return res.StatusCode, len(text), err
	}
	if status, _, err := ask(s.URL + "/moved"); status != http.StatusTemporaryRedirect || err != nil || elsewhere > 0 {
		t.Errorf("%d %v, and elsewhere %d times", status, err, elsewhere)
	}
	if status, n, err := ask(s.URL + "/long"); status != http.StatusOK || n != auth.MaxKeySetBytes || err != nil {
		t.Errorf("%d, %d bytes, %v", status, n, err)
	}
	for _, place := range []string{"http://192.0.2.1/", "http://127.0.0.1.example.com/", "http://localhost.example.com/"} {
		if _, _, err := ask(place); err == nil || !strings.Contains(err.Error(), "is neither https, nor http on loopback") {
			t.Errorf("%s: %v", place, err)
		}
	}
}
