package console

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
)

const (
	// signInPath begins a sign-in at a provider.
	signInPath = Prefix + "sign-in"
	// answerPath is where a provider sends a browser back. Some providers take no redirect address with a dollar sign.
	answerPath = "/api/console/signed-in"
)

// offered is a provider as the page of the sign-in shows it.
type offered struct {
	Issuer string `json:"issuer"`
	Label  string `json:"label"`
}

func (c *Console) offers() []offered {
	var all []offered
	if c.deps.Providers != nil {
		for _, p := range c.deps.Providers() {
			all = append(all, offered{p.Issuer, p.Label})
		}
	}
	return all
}

// serveSignIn answers a page with where to sign in (OpenID Connect Core 1.0 section 3.1.2.1). The browser gets the cookie
// that the provider's answer must come with.
func (c *Console) serveSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "A sign-in begins by POST.")
		return
	}
	var ask struct {
		Issuer string `json:"issuer"`
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusBadRequest, "Sign in with a body of the type application/json.")
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignIn))
	if err == nil {
		err = json.Unmarshal(text, &ask)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("The body is no request to sign in: %v.", err))
		return
	}
	p, err := c.provider(ask.Issuer)
	if err != nil {
		refuse(w, http.StatusBadRequest, "This node has no such identity provider. Load the page again.")
		return
	}
	to, begun, f := c.begin(r, p)
	if f != nil {
		c.log(r, p.Issuer, f)
		refuse(w, f.status, f.what+" "+f.now)
		return
	}
	sealed, err := c.seal.close(begun)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "The sign-in cannot be kept.")
		return
	}
	http.SetCookie(w, begun.secured(c.signInCookie(r, sealed, int(signInLife.Seconds()))))
	answer(w, http.StatusOK, map[string]string{"to": to})
}

// begin makes the secrets of a sign-in, and the address at the provider.
func (c *Console) begin(r *http.Request, p *Provider) (to string, begun *underWay, f *failure) {
	address, f := c.addressOf(r, p)
	if f != nil {
		return "", nil, f
	}
	end := c.known.talk()
	if end == nil || !c.asked.may() {
		return "", nil, busy()
	}
	defer end()
	ctx, cancel := context.WithTimeout(r.Context(), providerWait)
	defer cancel()
	known, err := c.known.find(ctx, p.Issuer, providerFresh)
	if err != nil {
		c.asked.failed()
		return "", nil, unreachable(p.Issuer, err)
	}
	config, err := known.config(p, address)
	if err != nil {
		return "", nil, noSecret(err)
	}
	begun = &underWay{Issuer: p.Issuer, State: chance(), Nonce: chance(), Verifier: oauth2.GenerateVerifier(), Address: address,
		Until: c.deps.Now().Add(signInLife)}
	return config.AuthCodeURL(begun.State, oidc.Nonce(begun.Nonce), oauth2.S256ChallengeOption(begun.Verifier)), begun, nil
}

// addressOf is where the provider sends the browser back to. It is the configured address, or the one that the browser
// called, which [Deps.Own] took for one of this node. A code that goes over a network in plain text is no secret.
func (c *Console) addressOf(r *http.Request, p *Provider) (string, *failure) {
	called := "http://" + r.Host
	if r.TLS != nil {
		called = "https://" + r.Host
	}
	switch {
	case p.Address != "":
		if u, err := url.Parse(p.Address); err == nil && strings.EqualFold(u.Host, r.Host) {
			return p.Address, nil
		}
		return "", failed(http.StatusConflict, "The identity provider sends browsers back to "+p.Address+", and you called "+called+".",
			"Open the console at "+p.Address+" to sign in there.", nil).unpaced()
	case !c.deps.Safe(called):
		return "", failed(http.StatusConflict, "You called "+called+", and others on the way could read what an identity provider answers there.",
			"Open the console by https. Who runs this node sets ops-tls for it.", nil).unpaced()
	}
	return called, nil
}

// serveAnswer takes what the provider sends the browser back with.
func (c *Console) serveAnswer(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, "A provider answers by GET.")
		return
	}
	u, f := c.ours(r)
	if f != nil {
		c.fail(w, r, "", f)
		return
	}
	// The browser forgets what began, whatever comes of it.
	http.SetCookie(w, u.secured(c.signInCookie(r, "", -1)))
	one, claim, f := c.redeem(r, u)
	if f != nil {
		c.fail(w, r, u.Issuer, f)
		return
	}
	http.SetCookie(w, u.secured(c.cookie(r, c.sessions.begin(one), int(sessionLife.Seconds()))))
	c.audit(r, "console.sign-in", audit.OK, audit.WhoOf(claim), "")
	c.deps.Log.Info("signed in to the console", "policy", claim.Policy, "issuer", claim.Issuer, "remote", r.RemoteAddr)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// ours returns the sign-in that this browser began here and that the answer belongs to. Nobody is asked for it, so
// strangers can make the node do nothing.
func (c *Console) ours(r *http.Request) (*underWay, *failure) {
	var u *underWay
	if cookie, err := r.Cookie(c.signInCookie(r, "", 0).Name); err == nil {
		u = c.seal.open(cookie.Value, c.deps.Now())
	}
	var f *failure
	switch {
	case u == nil:
		f = failed(http.StatusBadRequest, "No sign-in is under way in this browser at this node. It may have taken more than ten "+
			"minutes, have begun at another node, or the browser keeps no cookies.", beginAgain, nil)
	case subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("state")), []byte(u.State)) != 1:
		f = failed(http.StatusBadRequest, "The answer of the identity provider belongs to another sign-in: its state is not the one "+
			"that this browser began with.", beginAgain, nil)
	default:
		return u, nil
	}
	return nil, f.unpaced()
}

// redeem checks the answer and makes a session of it.
func (c *Console) redeem(r *http.Request, u *underWay) (one *session, claim auth.Claim, f *failure) {
	end := c.known.talk()
	if end == nil || !c.asked.may() {
		return nil, claim, busy()
	}
	defer end()
	defer func() {
		if f != nil {
			c.asked.failed()
		}
	}()
	ctx, cancel := context.WithTimeout(r.Context(), providerWait)
	defer cancel()
	p, err := c.provider(u.Issuer)
	if err != nil {
		return nil, claim, failed(http.StatusBadRequest, "This node does not sign in at "+u.Issuer+" any more.", beginAgain, err)
	}
	known, err := c.known.find(ctx, p.Issuer, providerKept)
	if err != nil {
		return nil, claim, unreachable(p.Issuer, err)
	}
	code, f := known.code(p, r.URL.Query())
	if f != nil {
		return nil, claim, f
	}
	config, err := known.config(p, u.Address)
	if err != nil {
		return nil, claim, noSecret(err)
	}
	tokens, err := config.Exchange(c.known.context(ctx), code, oauth2.VerifierOption(u.Verifier))
	if err != nil {
		return nil, claim, unpaid(p.Issuer, err)
	}
	id, f := c.identity(ctx, known, p, tokens, u.Nonce)
	if f != nil {
		return nil, claim, f
	}
	return c.admit(ctx, p, tokens, id)
}

// code takes the code out of an answer.
func (a *announced) code(p *Provider, q url.Values) (string, *failure) {
	// Two providers may be mixed up by one of them (RFC 9207 section 2.4).
	if given := q.Get("iss"); (given != "" || a.names) && given != p.Issuer {
		return "", failed(http.StatusBadRequest, "The answer comes from another identity provider than the one that was asked.", beginAgain, nil)
	}
	if code := q.Get("error"); code != "" {
		return "", refusedBy(p.Issuer, code, q.Get("error_description"))
	}
	code := q.Get("code")
	if code == "" {
		return "", failed(http.StatusBadRequest, "The answer of the identity provider has no code.", beginAgain, nil)
	}
	return code, nil
}

// leave is where somebody signs out at the provider (OpenID Connect RP-Initiated Logout 1.0), "" if nowhere. The ID token is
// no part of it, as the browser would see it there.
func (c *Console) leave(r *http.Request, one *session) string {
	p, err := c.provider(one.issuer)
	if err != nil {
		return ""
	}
	known := c.known.seen(p.Issuer)
	address, f := c.addressOf(r, p)
	if known == nil || known.leave == "" || f != nil {
		return ""
	}
	to, err := url.Parse(known.leave)
	if err != nil {
		return ""
	}
	q := to.Query()
	q.Set("client_id", p.ClientID)
	q.Set("post_logout_redirect_uri", address+"/")
	to.RawQuery = q.Encode()
	return to.String()
}
