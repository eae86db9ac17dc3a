package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// lobby is a desk whose console signs people in at a provider.
type lobby struct {
	*desk
	idp      *idp
	provider Provider
}

// newLobby follows the keys of the provider as a node does: when a token names one that is not known.
func newLobby(t *testing.T) *lobby {
	t.Helper()
	d := newDesk(t)
	l := &lobby{desk: d, idp: newIDP(t, d.clock)}
	l.provider = Provider{Issuer: l.idp.server.URL, Label: "Test", ClientID: clientID, Scopes: []string{"openid", "profile"}}
	l.grants(auth.Grant{Claim: "scp", Value: "broker.admin", Rights: auth.All})
	l.console = l.restarted()
	l.handler = l.console.Handler(http.NotFoundHandler())
	return l
}

// restarted is a console as the next process of the node has it.
func (l *lobby) restarted() *Console {
	l.t.Helper()
	deps := l.console.deps
	deps.Web = &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	deps.Safe = func(place string) bool {
		u, err := url.Parse(place)
		return err == nil && (u.Scheme == "https" || u.Scheme == "http" && u.Hostname() == "127.0.0.1")
	}
	deps.Providers = func() []Provider { return []Provider{l.provider} }
	c, err := New(deps)
	if err != nil {
		l.t.Fatal(err)
	}
	c.keyWait = 10 * time.Second
	return c
}

// grants says what tokens of the provider open.
func (l *lobby) grants(all ...auth.Grant) {
	l.t.Helper()
	err := l.policies.ReplaceIssuers([]auth.Issuer{{Name: l.provider.Issuer, Audiences: []string{auth.AzureAudience, clientID}, Grants: all}})
	if err == nil {
		err = l.policies.SetKeys(l.provider.Issuer, l.idp.keySet())
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// begin presses the button of the page, and returns where the browser goes and the cookie that it keeps.
func (l *lobby) begin() (to string, cookie *http.Cookie) {
	l.t.Helper()
	w := l.do(secure(request("POST", signInPath, `{"issuer":"`+l.provider.Issuer+`"}`)))
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		l.t.Fatalf("begin: %d %s", w.Code, w.Body)
	}
	return toldPlace(l.t, w), w.Result().Cookies()[0]
}

func toldPlace(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	_, to, found := strings.Cut(strings.TrimSpace(w.Body.String()), `{"to":"`)
	if !found {
		t.Fatal(w.Body)
	}
	return strings.ReplaceAll(strings.TrimSuffix(to, `"}`), `\u0026`, "&")
}

// returns is the request of a browser that a provider sent back: a page that somebody comes to from another site.
func returns(back *url.URL, cookies ...*http.Cookie) *http.Request {
	r := secure(request("GET", back.RequestURI(), "", "Content-Type", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"))
	r.Header.Del("Origin")
	for _, c := range cookies {
		if c.SameSite == http.SameSiteLaxMode { // a strict one stays at home
			r.AddCookie(c)
		}
	}
	return r
}

// enter signs in, and returns the cookie of the session.
func (l *lobby) enter() *http.Cookie {
	l.t.Helper()
	to, cookie := l.begin()
	w := l.do(returns(l.idp.visit(to), cookie))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		l.t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	for _, c := range w.Result().Cookies() {
		if c.SameSite == http.SameSiteStrictMode && c.MaxAge > 0 {
			return c
		}
	}
	l.t.Fatalf("no cookie of a session: %v", w.Result().Cookies())
	return nil
}

// Somebody signs in, acts with the rights of the token, and signs out.
func TestSomebodySignsInAtAProvider(t *testing.T) {
	for _, kind := range []string{"RSA", "EC"} {
		t.Run(kind, func(t *testing.T) {
			l := newLobby(t)
			l.idp.change(func(p *idp) { p.key = newKey(t, kind, "k2"); p.shown = []*signingKey{p.key} })
			l.grants(auth.Grant{Claim: "scp", Value: "broker.admin", Rights: auth.Listen}, auth.Grant{Claim: "scp", Value: "other", Entity: "Orders", Rights: auth.All})
			before := told(t, l.do(secure(request("GET", sessionPath, ""))))
			if want := []offered{{l.provider.Issuer, "Test"}}; before.SignedIn || !reflect.DeepEqual(before.Providers, want) {
				t.Errorf("the page is told %+v", before)
			}
			cookie := l.enter()
			w := l.do(with(secure(request("GET", sessionPath, "")), cookie))
			got := told(t, w)
			if !got.SignedIn || got.Policy != "ada@example.com" || got.Issuer != l.provider.Issuer || got.Scope != "" ||
				!reflect.DeepEqual(got.Rights, []string{"Listen"}) || !reflect.DeepEqual(got.Entities, []entityRights{{"orders", []string{"Listen", "Send", "Manage"}}}) {
				t.Errorf("the page is told %+v", got)
			}
			if strings.Contains(w.Body.String(), "eyJ") {
				t.Errorf("the page is told a token: %s", w.Body)
			}
			l.do(with(secure(request("GET", portPrefix+"/api/entities", "")), cookie))
			asked, claim := l.last()
			if claim.Issuer != l.provider.Issuer || claim.Policy != "sub:u-17" || !claim.Allows("orders/$deadletterqueue", auth.Manage) || claim.Allows("bills", auth.Send) || !strings.HasPrefix(asked.Header.Get("Authorization"), "Bearer ey") {
				t.Errorf("the port sees %+v", claim)
			}
			w = l.do(with(secure(request("DELETE", sessionPath, "")), cookie))
			want := l.provider.Issuer + "/leave?client_id=busbar&post_logout_redirect_uri=https%3A%2F%2Fbusbar.local%3A5300%2F&tenant=7"
			if out := told(t, w); out.Leave != want || out.SignedIn {
				t.Errorf("signed out: %+v", out)
			}
			if w := l.do(with(secure(request("GET", portPrefix+"/api/entities", "")), cookie)); w.Code != 401 {
				t.Errorf("after the end: %d", w.Code)
			}
		})
	}
}

// The cookie of a sign-in under way comes back from the provider, is no script's, holds nothing that can be read, and goes
// when the answer is there. That of the session is strict.
func TestTheCookieOfASignIn(t *testing.T) {
	l := newLobby(t)
	to, c := l.begin()
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.MaxAge != int(signInLife.Seconds()) || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("the cookie of a sign-in: %v", c)
	}
	q, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{q.Query().Get("state"), q.Query().Get("nonce"), "verifier", l.provider.Issuer} {
		if strings.Contains(c.Value, hidden) || strings.Contains(c.Value, in64([]byte(hidden))) {
			t.Errorf("the cookie shows %s", hidden)
		}
	}
	cookies := l.do(returns(l.idp.visit(to), c)).Result().Cookies()
	if len(cookies) != 2 || cookies[0].Name != c.Name || cookies[0].MaxAge >= 0 {
		t.Fatalf("%v", cookies)
	}
	if s := cookies[1]; !s.HttpOnly || !s.Secure || s.SameSite != http.SameSiteStrictMode || s.Path != "/" || s.Domain != "" || s.Name == c.Name || len(s.Value) < 40 {
		t.Errorf("the cookie of a session: %v", s)
	}
	// Behind a proxy that ends the TLS the browser calls by https, and the node hears plain HTTP.
	l.provider.Address = "https://" + home
	w := l.do(request("POST", signInPath, `{"issuer":"`+l.provider.Issuer+`"}`))
	if all := w.Result().Cookies(); len(all) != 1 || !all[0].Secure {
		t.Errorf("behind a proxy: %d %v", w.Code, all)
	}
}

// Two sign-ins share no secret: neither state, nonce and challenge, nor what the cookie holds.
func TestSignInsShareNoSecret(t *testing.T) {
	l := newLobby(t)
	seen := map[string]bool{}
	for range 20 {
		to, cookie := l.begin()
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range []string{u.Query().Get("state"), u.Query().Get("nonce"), u.Query().Get("code_challenge"), cookie.Value} {
			if len(one) < 43 || seen[one] {
				t.Errorf("%q again, or short", one)
			}
			seen[one] = true
		}
	}
}

// A confidential client shows its secret as the provider announces; a public one has none.
func TestTheSecretOfTheClient(t *testing.T) {
	for name, announced := range map[string]any{"nothing is announced": nil, "in a header": []string{"client_secret_basic"}, "in the form": []string{"client_secret_post"}} {
		l := newLobby(t)
		l.provider.Secret = func() (string, error) { return "s:e/c r", nil }
		l.idp.change(func(p *idp) {
			p.secret = map[bool]string{true: "s:e/c r", false: "s%3Ae%2Fc+r"}[name == "in the form"] // RFC 6749 section 2.3.1 encodes it in a header
			p.announce = func(v map[string]any) {
				if announced != nil {
					v["token_endpoint_auth_methods_supported"] = announced
				}
			}
		})
		t.Run(name, func(*testing.T) { l.enter() })
	}
}

// The provider begins to sign with another key: the next sign-in waits until the node has it, and sessions of the old key end
// when the provider takes that one back.
func TestAProviderChangesItsKey(t *testing.T) {
	l := newLobby(t)
	go func() {
		for {
			select {
			case <-l.policies.KeysWanted(l.provider.Issuer):
				if err := l.policies.SetKeys(l.provider.Issuer, l.idp.keySet()); err != nil {
					t.Error(err)
				}
			case <-t.Context().Done():
				return
			}
		}
	}()
	l.idp.change(func(p *idp) { p.noRefresh = true })
	first := l.enter()
	l.idp.change(func(p *idp) { p.key = newKey(t, "EC", "k2"); p.shown = append(p.shown, p.key) })
	second := l.enter()
	l.idp.change(func(p *idp) { p.shown = p.shown[1:] })
	if err := l.policies.SetKeys(l.provider.Issuer, l.idp.keySet()); err != nil {
		t.Fatal(err)
	}
	for cookie, want := range map[*http.Cookie]bool{first: false, second: true} {
		if got := told(t, l.do(with(secure(request("GET", sessionPath, "")), cookie))); got.SignedIn != want {
			t.Errorf("a session of the old key %v: %+v", !want, got)
		}
	}
}

// With token: id the ID token is what opens the node, and the access token may be anything.
func TestTheIDTokenMayBeJudged(t *testing.T) {
	l := newLobby(t)
	l.provider.IDToken = true
	l.idp.change(func(p *idp) {
		p.claims = func(id, access map[string]any) {
			id["groups"], access["opaque"] = []string{"admins"}, "no JSON web token"
		}
	})
	l.grants(auth.Grant{Claim: "groups", Value: "admins", Rights: auth.Manage | auth.Send | auth.Listen})
	if got := told(t, l.do(with(secure(request("GET", sessionPath, "")), l.enter()))); !got.SignedIn || len(got.Rights) != 3 {
		t.Errorf("%+v", got)
	}
}

// A node that is asked again and again asks its provider once in five seconds, and lets keys in while the provider does not
// answer.
func TestStrangersDoNotMakeTheNodeAsk(t *testing.T) {
	l := newLobby(t)
	const announced = "/.well-known/openid-configuration"
	for range 30 {
		l.begin()
	}
	if n := l.idp.times(announced); n != 1 {
		t.Errorf("%d requests", n)
	}
	l.later(providerFresh)
	l.idp.change(func(p *idp) { p.at[announced] = http.NotFound })
	body := `{"issuer":"` + l.provider.Issuer + `"}`
	for i := range paceAtOnce {
		if w := l.do(secure(request("POST", signInPath, body))); w.Code != http.StatusBadGateway {
			t.Fatalf("attempt %d: %d %s", i, w.Code, w.Body)
		}
	}
	if w := l.do(secure(request("POST", signInPath, body))); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "sign in with the key of a policy") {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	l.signIn("root", rootKey, "")
	stranger := &url.URL{Path: answerPath, RawQuery: "code=x&state=y"}
	before := len(l.idp.asked)
	for range 2 * paceAtOnce {
		if w := l.do(returns(stranger)); w.Code != http.StatusBadRequest {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if len(l.idp.asked) != before {
		t.Errorf("strangers made the node ask %v", l.idp.asked[before:])
	}
}

// Who begins a sign-in and brings codes of his own has the node ask so often, and no more.
func TestInventedCodesHaveAPace(t *testing.T) {
	l := newLobby(t)
	to, cookie := l.begin()
	back := l.idp.visit(to)
	for i := range paceAtOnce + 5 {
		q := back.Query()
		q.Set("code", chance())
		want := http.StatusUnauthorized
		if i >= paceAtOnce {
			want = http.StatusTooManyRequests
		}
		if w := l.do(returns(&url.URL{Path: answerPath, RawQuery: q.Encode()}, cookie)); w.Code != want {
			t.Errorf("code %d: %d %s", i, w.Code, w.Body)
		}
	}
	if n := l.idp.times("/token"); n != paceAtOnce {
		t.Errorf("%d requests for tokens", n)
	}
}
