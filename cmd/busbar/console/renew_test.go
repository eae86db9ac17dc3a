package console

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// ask is a request of the page of a session; it reports whether somebody is signed in, and which token the port saw.
func (l *lobby) ask(cookie *http.Cookie) (in bool, token string) {
	l.t.Helper()
	w := l.do(with(secure(request("GET", portPrefix+"/api/cluster", "")), cookie))
	r, _ := l.last()
	if w.Code != http.StatusOK || r == nil {
		return false, ""
	}
	return true, r.Header.Get("Authorization")
}

// A session lives on by a new token shortly before the old one ends, and the page notices nothing. It ends after twelve hours all
// the same.
func TestTokensAreRenewed(t *testing.T) {
	l := newLobby(t)
	cookie := l.enter()
	_, first := l.ask(cookie)
	asked := l.idp.times("/token")
	l.later(9*time.Minute - time.Second)
	if in, token := l.ask(cookie); !in || token != first || l.idp.times("/token") != asked {
		t.Errorf("before it is time: signed in %v, a new token %v", in, token != first)
	}
	l.later(time.Second)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if w := l.do(with(secure(request("GET", portPrefix+"/api/cluster", "")), cookie)); w.Code != http.StatusOK {
				t.Errorf("a request while the token is renewed: %d", w.Code)
			}
		})
	}
	all.Wait()
	if in, token := l.ask(cookie); !in || token == first || l.idp.times("/token") != asked+1 {
		t.Errorf("signed in %v, a new token %v, %d requests", in, token != first, l.idp.times("/token")-asked)
	}
	for range 12 * 7 {
		l.later(9 * time.Minute)
		l.ask(cookie)
	}
	if in, _ := l.ask(cookie); in {
		t.Error("the session has no end")
	}
}

// What keeps a token from being renewed. The session then lasts as long as the token that it has, and no longer.
func TestTokensThatAreNotRenewed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*lobby)
		asks  int // what the provider is asked in the last minute of the token, at a request each second. This
		// provider takes a refresh token once: what is asked after an answer that is no good is refused.
	}{
		"the provider gives no refresh token": {func(l *lobby) { l.idp.change(func(p *idp) { p.noRefresh = true }) }, 0},
		"the provider has ended its session":  {func(l *lobby) { l.idp.refresh = "" }, 1},
		"somebody else": {func(l *lobby) {
			l.claims(func(id, access map[string]any) { id["sub"], access["sub"] = "u-18", "u-18" })
		}, 2},
		"a token without a right": {func(l *lobby) { l.claims(func(_, access map[string]any) { access["scp"] = "none" }) }, 2},
		"an ID token for another client": {func(l *lobby) {
			l.claims(func(id, _ map[string]any) { id["aud"] = "other" })
		}, 2},
		"a provider that fails": {func(l *lobby) {
			l.answers("/token", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "?", http.StatusBadGateway) })
		}, 12},
		"a provider that was taken away": {func(l *lobby) { l.provider.Issuer = "https://other.example" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLobby(t)
			if c.asks == 0 {
				c.spoil(l)
			}
			if strings.Contains(name, "taken away") {
				l.provider.Issuer = l.idp.server.URL
			}
			cookie := l.enter()
			c.spoil(l)
			asked := l.idp.times("/token")
			l.later(9 * time.Minute)
			for second := range 60 {
				if in, _ := l.ask(cookie); !in {
					t.Fatalf("over %d s too early", 60-second)
				}
				if second == 0 && c.asks == 1 {
					l.idp.change(func(p *idp) { p.refresh = "another" })
				}
				l.later(time.Second)
			}
			if n := l.idp.times("/token") - asked; n != c.asks {
				t.Errorf("%d requests for tokens, want %d", n, c.asks)
			}
			if in, _ := l.ask(cookie); in {
				t.Error("the session outlives its token")
			}
			if len(l.console.sessions.all) > 0 {
				t.Error("the session is kept")
			}
		})
	}
}

// A grant that is taken away counts for the next request.
func TestAGrantIsTakenAway(t *testing.T) {
	l := newLobby(t)
	cookie := l.enter()
	if in, _ := l.ask(cookie); !in {
		t.Fatal("not signed in")
	}
	l.grants(auth.Grant{Claim: "scp", Value: "nobody", Rights: auth.Listen})
	if in, _ := l.ask(cookie); in {
		t.Error("still signed in")
	}
}
