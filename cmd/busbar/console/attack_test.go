package console

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// attempt is a sign-in that somebody spoils on its way.
type attempt struct {
	*lobby
	back   *url.URL // what the provider sent the browser to
	cookie *http.Cookie
}

func (a *attempt) set(name, value string) {
	q := a.back.Query()
	q.Set(name, value)
	if value == "" {
		q.Del(name)
	}
	a.back.RawQuery = q.Encode()
}

// claims spoils both tokens.
func (l *lobby) claims(f func(id, access map[string]any)) {
	l.idp.change(func(p *idp) { p.claims = f })
}

// answers takes the place of an answer of the provider.
func (l *lobby) answers(path string, f http.HandlerFunc) {
	l.idp.change(func(p *idp) { p.at[path] = f })
}

const (
	notUnderWay = "No sign-in is under way in this browser at this node. It may have taken more than ten minutes, have begun at another node, or the browser keeps no cookies."
	otherState  = "The answer of the identity provider belongs to another sign-in: its state is not the one that this browser began with."
	again       = "Go back to the sign-in page and begin again."
	orTell      = "Begin again. If it stays so, tell who runs this node."
	laterOrTell = "Try again in a minute, or sign in with the key of a policy. If it stays so, tell who runs this node."
)

// attacks are answers that nobody is signed in by. before spoils the provider, after what the browser brings.
var attacks = []struct {
	name          string
	before        func(*lobby)
	after         func(*attempt)
	status        int
	what, andThen string // IDP stands for the issuer
}{
	{"a browser without the cookie", nil, func(a *attempt) { a.cookie = nil }, 400, notUnderWay, again},
	{"a cookie that was changed", nil, func(a *attempt) {
		v := []byte(a.cookie.Value)
		v[len(v)/2] ^= 1
		a.cookie.Value = string(v)
	}, 400, notUnderWay, again},
	{"a cookie of our own making", nil, func(a *attempt) { a.cookie.Value = in64([]byte(`{"state":"x","until":"2100-01-01T00:00:00Z"}`)) }, 400, notUnderWay, again},
	{"a cookie of another process", nil, func(a *attempt) { a.handler = a.restarted().Handler(nil) }, 400, notUnderWay, again},
	{"a sign-in of ten minutes", nil, func(a *attempt) { a.later(signInLife) }, 400, notUnderWay, again},
	{"the session's cookie in the place of the sign-in's", nil, func(a *attempt) {
		a.cookie.Value = a.signIn("root", rootKey, "").Value
	}, 400, notUnderWay, again},
	{"no state", nil, func(a *attempt) { a.set("state", "") }, 400, otherState, again},
	{"another state", nil, func(a *attempt) { a.set("state", chance()) }, 400, otherState, again},
	{"a stranger's answer in the browser of a victim", nil, func(a *attempt) {
		to, _ := a.begin()
		a.back = a.idp.visit(to)
	}, 400, otherState, again},
	{"a stranger's code under the state of a victim", nil, func(a *attempt) {
		to, _ := a.begin()
		a.set("code", a.idp.visit(to).Query().Get("code"))
	}, 401, "The identity provider takes its code no more (invalid_grant: the code counts no more). A code counts once, and for a short time.", again},
	{"an answer that comes twice", nil, func(a *attempt) {
		if w := a.do(returns(a.back, a.cookie)); w.Code != http.StatusSeeOther {
			a.t.Fatal(w.Code, w.Body)
		}
		a.console.sessions = newSessions(a.clock)
	}, 401, "The identity provider takes its code no more (invalid_grant: the code counts no more). A code counts once, and for a short time.", again},
	{"no code", nil, func(a *attempt) { a.set("code", "") }, 400, "The answer of the identity provider has no code.", again},
	{"the answer of another provider", nil, func(a *attempt) { a.set("iss", "https://evil.example") }, 400, "The answer comes from another identity provider than the one that was asked.", again},
	{"no name of the provider although it gives one", func(l *lobby) {
		l.idp.announce = func(v map[string]any) { v["authorization_response_iss_parameter_supported"] = true }
	}, nil, 400, "The answer comes from another identity provider than the one that was asked.", again},
	{"the user says no, with a script", nil, func(a *attempt) {
		a.set("error", "access_denied")
		a.set("error_description", "<script>alert(1)</script>\n")
	}, 403, "The identity provider IDP refused (access_denied: <script>alert(1)</script> ).", "Begin again and consent, or ask who runs the provider to let you use this application."},
	{"the provider is busy", nil, func(a *attempt) { a.set("error", "temporarily_unavailable") }, 403, "The identity provider IDP refused (temporarily_unavailable).", "Try again in a minute, or sign in with the key of a policy."},
	{"a scope that the provider does not know", nil, func(a *attempt) { a.set("error", "invalid_scope") }, 403, "The identity provider IDP refused (invalid_scope).", "Tell who runs this node: the provider does not know one of the scopes below sign-in."},
	{"a provider that was taken from the configuration", nil, func(a *attempt) { a.provider.Issuer += "/gone" }, 400, "This node does not sign in at IDP any more.", again},

	{"no ID token", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["none"] = true }) }, nil, 502, "The identity provider gave no ID token.", orTell},
	{"another nonce", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["nonce"] = chance() }) }, nil, 502, "The ID token belongs to another sign-in: its nonce is not the one that this browser began with.", orTell},
	{"no nonce", func(l *lobby) { l.claims(func(id, _ map[string]any) { delete(id, "nonce") }) }, nil, 502, "The ID token belongs to another sign-in: its nonce is not the one that this browser began with.", orTell},
	{"an ID token for another client", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["aud"] = "other" }) }, nil, 502, `The ID token of the identity provider is not good: expected audience "busbar" got ["other"].`, orTell},
	{"an ID token for two, made for the other", func(l *lobby) {
		l.claims(func(id, _ map[string]any) { id["aud"], id["azp"] = []string{"other", clientID}, "other" })
	}, nil, 502, "The ID token was made for another client: its azp is other.", orTell},
	{"an ID token of another issuer", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["iss"] = "https://evil.example" }) }, nil, 502, `The ID token of the identity provider is not good: id token issued by a different provider, expected "IDP" got "https://evil.example".`, orTell},
	{"an ID token that is over", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["exp"] = 1_699_999_999 }) }, nil, 502, "The ID token of the identity provider is not good: token is expired (Token Expiry: TIME).", orTell},
	{"an ID token without an end", func(l *lobby) { l.claims(func(id, _ map[string]any) { delete(id, "exp") }) }, nil, 502, "The ID token of the identity provider is not good: token is expired (Token Expiry: TIME).", orTell},
	{"an ID token that nobody signed", func(l *lobby) { l.idp.algorithm = "none" }, nil, 502, `The ID token of the identity provider is not good: malformed jwt: unexpected signature algorithm "none"; expected ["RS256" "RS384" "RS512" "ES256" "ES384" "ES512" "PS256" "PS384" "PS512" "EdDSA"].`, orTell},
	{"an ID token with the public key as a secret", func(l *lobby) { l.idp.algorithm = "HS256" }, nil, 502, `The ID token of the identity provider is not good: malformed jwt: unexpected signature algorithm "HS256"; expected ["RS256" "RS384" "RS512" "ES256" "ES384" "ES512" "PS256" "PS384" "PS512" "EdDSA"].`, orTell},
	{"a stranger's key of the same name", func(l *lobby) { l.idp.key = newKey(l.t, "RSA", "k1") }, nil, 502, "The ID token of the identity provider is not good: failed to verify signature: failed to verify id token signature.", orTell},
	{"an ID token of nobody", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["sub"] = "" }) }, nil, 502, "The ID token names nobody: it has no sub.", orTell},
	{"an access token from elsewhere", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["at_hash"] = in64(make([]byte, 16)) }) }, nil, 502, "The access token and the ID token do not belong together.", orTell},
	{"a name that is a list", func(l *lobby) { l.claims(func(id, _ map[string]any) { id["name"] = []string{"a"} }) }, nil, 502, "The ID token of the identity provider has a claim of a strange type.", orTell},

	{"somebody without a right", func(l *lobby) { l.claims(func(_, access map[string]any) { access["scp"] = "other" }) }, nil, 403, "IDP signed you in as ada@example.com, and you have no right here.", "Ask who runs this node for a grant, and sign in again."},
	{"an access token for another audience", func(l *lobby) { l.claims(func(_, access map[string]any) { access["aud"] = "https://graph.example" }) }, nil, 403, "The access token of IDP is for another audience.", "Tell who runs this node: audiences of the issuer must name that of the token, or scopes must ask for a token of one of them."},
	{"an access token that is no JSON web token", func(l *lobby) { l.claims(func(_, access map[string]any) { access["opaque"] = "a.b.c" }) }, nil, 403, "The access token of IDP is no JSON web token, and this node cannot judge it.", "Tell who runs this node: scopes must ask for an access token that is one, or sign-in must say token: id."},
	{"an access token that is over", func(l *lobby) { l.claims(func(_, access map[string]any) { access["exp"] = 1_699_999_990 }) }, nil, 403, "The access token of IDP is over already, or begins later.", "Tell who runs this node: its clock and that of the provider differ."},
	{"a shared access signature in the place of a token", func(l *lobby) {
		l.claims(func(_, access map[string]any) {
			access["opaque"] = auth.NewToken("sb://localhost/", "root", rootKey, time.Unix(1_800_000_000, 0))
		})
	}, nil, 403, "The token that IDP gave is not its own.", "Tell who runs this node."},
	{"a key that the node does not get", func(l *lobby) {
		l.console.keyWait = time.Millisecond
		l.idp.key = newKey(l.t, "RSA", "k9")
		l.idp.shown = append(l.idp.shown, l.idp.key)
	}, nil, 503, "This node does not have the key yet that IDP signs with.", "Begin again in half a minute."},

	{"a client that the provider does not know", func(l *lobby) { l.idp.secret = "x" }, nil, 502, "The identity provider does not know this node as its client (invalid_client: who are you?).", "Tell who runs this node: client-id and client-secret-file below sign-in must be those of the provider."},
	{"a provider that gives no token", func(l *lobby) {
		l.answers("/token", func(w http.ResponseWriter, _ *http.Request) {
			l.idp.writes(w, 400, map[string]string{"error": "invalid_scope"})
		})
	}, nil, 502, "The identity provider gives no token (invalid_scope).", "Tell who runs this node."},
	{"a provider that fails, with a secret in its answer", func(l *lobby) {
		l.answers("/token", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "password: x", 500) })
	}, nil, 502, "The identity provider IDP does not answer as one does: its place for tokens answers 500 Internal Server Error.", laterOrTell},
	{"a place for tokens that sends elsewhere", func(l *lobby) {
		l.answers("/token", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		})
	}, nil, 502, "The identity provider IDP does not answer as one does: its place for tokens answers 307 Temporary Redirect.", laterOrTell},
	{"a provider that hangs", func(l *lobby) {
		l.answers("/token", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the node is gone
			<-r.Context().Done()
		})
	}, func(a *attempt) { a.console.deps.Web.Timeout = 50 * time.Millisecond }, 502, `The identity provider IDP does not answer as one does: Post "IDP/token": context deadline exceeded (Client.Timeout exceeded while awaiting headers).`, laterOrTell},
}

// Each attack is refused in plain words with the cure, and begins no session.
func TestAttacksOnASignIn(t *testing.T) {
	said := regexp.MustCompile(`(?s)<p class="problem"><strong>Error: </strong>(.*?)</p>\n<p>(.*?)</p>`)
	times := regexp.MustCompile(`Token Expiry: [^)]*`)
	for _, c := range attacks {
		t.Run(c.name, func(t *testing.T) {
			l := newLobby(t)
			if c.before != nil {
				c.before(l)
			}
			issuer := l.provider.Issuer
			to, cookie := l.begin()
			a := &attempt{l, l.idp.visit(to), cookie}
			if c.after != nil {
				c.after(a)
			}
			var cookies []*http.Cookie
			if a.cookie != nil {
				cookies = append(cookies, a.cookie)
			}
			sessions := len(l.console.sessions.all)
			w := a.do(returns(a.back, cookies...))
			text := times.ReplaceAllString(strings.ReplaceAll(w.Body.String(), issuer, "IDP"), "Token Expiry: TIME")
			got := said.FindStringSubmatch(text)
			if w.Code != c.status || got == nil || html.UnescapeString(got[1]) != c.what || html.UnescapeString(got[2]) != c.andThen {
				t.Errorf("%d %q\nwant %d %q %q", w.Code, got, c.status, c.what, c.andThen)
			}
			if strings.Contains(w.Body.String(), "<script") || strings.Contains(w.Body.String(), "password") || w.Header().Get("Content-Security-Policy") != contentPolicy ||
				w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("an unsafe page: %v %s", w.Header(), w.Body)
			}
			if len(l.console.sessions.all) != sessions {
				t.Error("there is a session")
			}
			for _, one := range w.Result().Cookies() {
				if one.MaxAge >= 0 {
					t.Errorf("a cookie: %v", one)
				}
			}
		})
	}
}

// What cannot begin a sign-in.
func TestSignInsThatDoNotBegin(t *testing.T) {
	announces := func(name string, value any) func(*lobby, *http.Request) {
		return func(l *lobby, _ *http.Request) {
			l.idp.announce = func(v map[string]any) {
				if v[name] = value; value == nil {
					delete(v, name)
				}
			}
		}
	}
	const doesNot = "The identity provider IDP does not answer as one does: "
	for name, c := range map[string]struct {
		spoil  func(*lobby, *http.Request)
		status int
		says   string
	}{
		"another provider": {func(l *lobby, _ *http.Request) { l.provider.Issuer = "https://other.example" }, 400, "This node has no such identity provider. Load the page again."},
		"plain HTTP over a network": {func(_ *lobby, r *http.Request) {
			r.TLS = nil
			r.Header.Set("Origin", "http://"+home)
		}, 409, "You called http://" + home + ", and others on the way could read what an identity provider answers there. Open the console by https. Who runs this node sets ops-tls for it."},
		"another host than the provider knows": {func(l *lobby, _ *http.Request) { l.provider.Address = "https://console.example.com" }, 409,
			"The identity provider sends browsers back to https://console.example.com, and you called https://" + home + ". Open the console at https://console.example.com to sign in there."},
		"a secret that is gone": {func(l *lobby, _ *http.Request) {
			l.provider.Secret = func() (string, error) { return "", http.ErrNoLocation }
		}, 500, "The secret of this node at the identity provider cannot be read. Tell who runs this node to look at client-secret-file."},
		"a provider under another name":  {announces("issuer", "https://evil.example"), 502, doesNot + `oidc: issuer URL provided to client ("IDP") did not match the issuer URL returned by provider ("https://evil.example").` + " " + laterOrTell},
		"a place to sign in without TLS": {announces("authorization_endpoint", "http://login.example/authorize"), 502, doesNot + `IDP announces "http://login.example/authorize", which is not https.` + " " + laterOrTell},
		"a script to sign in":            {announces("authorization_endpoint", "javascript:alert(1)"), 502, doesNot + `IDP announces "javascript:alert(1)", which is not https.` + " " + laterOrTell},
		"a place for tokens without TLS": {announces("token_endpoint", "http://169.254.169.254/latest"), 502, doesNot + `IDP announces "http://169.254.169.254/latest", which is not https.` + " " + laterOrTell},
		"a host that begins as loopback": {announces("token_endpoint", "http://127.evil.example/"), 502, doesNot + `IDP announces "http://127.evil.example/", which is not https.` + " " + laterOrTell},
		"keys without TLS":               {announces("jwks_uri", "http://keys.example/"), 502, doesNot + `IDP announces "http://keys.example/", which is not https.` + " " + laterOrTell},
		"a way out without TLS":          {announces("end_session_endpoint", "http://leave.example/"), 502, doesNot + `IDP announces "http://leave.example/", which is not https.` + " " + laterOrTell},
		"a place with a password":        {announces("token_endpoint", "https://u:p@token.example/"), 502, doesNot + `IDP announces "https://u:p@token.example/", which is not https.` + " " + laterOrTell},
		"no keys":                        {announces("jwks_uri", nil), 502, doesNot + "IDP announces no place to sign in, none for tokens, or none for keys. " + laterOrTell},
		"no place to sign in":            {announces("authorization_endpoint", nil), 502, doesNot + "IDP announces no place to sign in, none for tokens, or none for keys. " + laterOrTell},
		"an announcement that moved": {func(l *lobby, _ *http.Request) {
			l.answers("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/there", http.StatusFound) })
		}, 502, doesNot + `302 Found: <a href="/there">Found</a>.` + " " + laterOrTell},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLobby(t)
			issuer := l.provider.Issuer
			r := secure(request("POST", signInPath, `{"issuer":"`+issuer+`"}`))
			c.spoil(l, r)
			w := l.do(r)
			got := strings.ReplaceAll(toldError(t, w), issuer, "IDP")
			if w.Code != c.status || got != c.says || len(w.Result().Cookies()) > 0 {
				t.Errorf("%d %q\nwant %d %q", w.Code, got, c.status, c.says)
			}
		})
	}
}

// A provider elsewhere has no business with the doors of this host, and a place on loopback is good for one on loopback.
func TestPlacesOfAProvider(t *testing.T) {
	p := newLobby(t).console.known
	for _, c := range []struct {
		issuer, place string
		good          bool
	}{
		{"https://login.example", "https://login.example/token", true},
		{"https://login.example", "https://token.example/", true},
		{"https://login.example", "http://127.0.0.1:8080/token", false},
		{"https://login.example", "http://login.example/token", false},
		{"http://127.0.0.1:8080", "http://127.0.0.1:9090/token", true},
		{"http://127.0.0.1:8080", "https://login.example/token", true},
		{"http://127.0.0.1:8080", "http://127.0.0.1.evil.example/", false},
		{"http://127.0.0.1:8080", "ftp://127.0.0.1/", false},
		{"http://127.0.0.1:8080", "//127.0.0.1/", false},
	} {
		if got := p.place(c.issuer, c.place); got != c.good {
			t.Errorf("%s at %s: %v", c.place, c.issuer, got)
		}
	}
}

// Only a page that somebody goes to brings an answer, and only this node's own page begins a sign-in.
func TestOtherSitesBeginNoSignIn(t *testing.T) {
	l := newLobby(t)
	body := `{"issuer":"` + l.provider.Issuer + `"}`
	to, cookie := l.begin()
	back := l.idp.visit(to)
	for name, c := range map[string]struct {
		r    *http.Request
		want int
	}{
		"a form of another site":      {secure(request("POST", signInPath, body, "Sec-Fetch-Site", "cross-site")), 403},
		"another origin":              {request("POST", signInPath, body, "Origin", "https://evil.example"), 403},
		"no origin":                   {request("POST", signInPath, body, "Origin", ""), 403},
		"another host":                {request("POST", signInPath, body, "Host", "evil.example"), 403},
		"a form":                      {secure(request("POST", signInPath, "issuer=x", "Content-Type", "application/x-www-form-urlencoded")), 400},
		"no JSON":                     {secure(request("POST", signInPath, "{")), 400},
		"a long body":                 {secure(request("POST", signInPath, `{"issuer":"`+strings.Repeat("x", maxSignIn)+`"}`)), 400},
		"a link":                      {secure(request("GET", signInPath, "")), 405},
		"an answer as a picture":      {changed(returns(back, cookie), "Sec-Fetch-Mode", "no-cors"), 403},
		"an answer that a script got": {changed(returns(back, cookie), "Sec-Fetch-Mode", "cors"), 403},
		"an answer by a form":         {secure(request("POST", answerPath+"?"+back.RawQuery, "")), 405},
		"an answer at another host":   {at(returns(back, cookie), "evil.example"), 403},
	} {
		if w := l.do(c.r); w.Code != c.want || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if len(l.console.sessions.all) > 0 {
		t.Error("there is a session")
	}
	if w := l.do(returns(back, cookie)); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Errorf("the answer itself: %d %s", w.Code, w.Body)
	}
}

func changed(r *http.Request, name, value string) *http.Request {
	r.Header.Set(name, value)
	return r
}

func at(r *http.Request, host string) *http.Request {
	r.Host = host
	return r
}

func toldError(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var v struct {
		Error string `json:"error"`
	}
	read(t, w, &v)
	return v.Error
}
