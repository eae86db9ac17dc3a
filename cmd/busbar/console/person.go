package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/busbar-mq/busbar/transport/auth"
)

// person is what an ID token says of who signed in.
type person struct {
	subject, name, token string
}

// algorithms are those of signatures of ID tokens, whatever a provider announces: those with public keys.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.EdDSA}

// identity checks the ID token (OpenID Connect Core 1.0 section 3.1.3.7). A nonce is not asked for when a token is renewed.
func (c *Console) identity(ctx context.Context, known *announced, p *Provider, tokens *oauth2.Token, nonce string) (*person, *failure) {
	bad := func(what string, err error) (*person, *failure) {
		return nil, failed(http.StatusBadGateway, what, "Begin again. If it stays so, tell who runs this node.", err)
	}
	text, _ := tokens.Extra("id_token").(string)
	if text == "" {
		return bad("The identity provider gave no ID token.", nil)
	}
	verifier := known.provider.Verifier(&oidc.Config{ClientID: p.ClientID, Now: c.deps.Now, SupportedSigningAlgs: algorithms})
	token, err := verifier.Verify(c.known.context(ctx), text)
	if err != nil {
		return bad("The ID token of the identity provider is not good: "+clip(strings.TrimPrefix(words(err), "oidc: "))+".", err)
	}
	var says struct {
		Party string `json:"azp"`
		User  string `json:"preferred_username"`
		Mail  string `json:"email"`
		Whole string `json:"name"`
	}
	if err := token.Claims(&says); err != nil {
		return bad("The ID token of the identity provider has a claim of a strange type.", err)
	}
	switch {
	case nonce != "" && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return bad("The ID token belongs to another sign-in: its nonce is not the one that this browser began with.", nil)
	case says.Party != "" && says.Party != p.ClientID:
		return bad("The ID token was made for another client: its azp is "+clip(says.Party)+".", nil)
	case token.Subject == "":
		return bad("The ID token names nobody: it has no sub.", nil)
	}
	if token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(tokens.AccessToken); err != nil {
			return bad("The access token and the ID token do not belong together.", err)
		}
	}
	name := token.Subject
	for _, one := range []string{says.Whole, says.Mail, says.User} {
		if one != "" {
			name = one
		}
	}
	return &person{token.Subject, clip(name), text}, nil
}

// keyWait is how long an answer may wait for a key that the provider has just begun to sign with. [auth.Policies] asks for it.
const keyWait = 2 * time.Second

// judge is [auth.Policies.Verify], with some patience for a key.
func (c *Console) judge(ctx context.Context, token string) (auth.Claim, error) {
	patience, cancel := context.WithTimeout(ctx, c.keyWait)
	defer cancel()
	for {
		claim, err := c.deps.Policies.Verify(token, c.deps.Now())
		if !errors.Is(err, auth.ErrUnknownKey) {
			return claim, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-patience.Done():
			return claim, err
		}
	}
}

// admit has the token judged as that of any client.
func (c *Console) admit(ctx context.Context, p *Provider, tokens *oauth2.Token, id *person) (*session, auth.Claim, *failure) {
	text := tokens.AccessToken
	if p.IDToken {
		text = id.token
	}
	b := &bearer{token: "Bearer " + text, refresh: tokens.RefreshToken}
	claim, err := c.judge(ctx, b.token)
	if err != nil {
		return nil, claim, closed(p, id.name, err)
	}
	if claim.Issuer != p.Issuer { // a provider has no business with the tokens of another
		return nil, claim, failed(http.StatusForbidden, "The token that "+p.Issuer+" gave is not its own.", "Tell who runs this node.", nil)
	}
	if len(b.refresh) > auth.MaxTokenBytes {
		b.refresh = ""
	}
	now := c.deps.Now()
	b.begins, b.ends = now, claim.Expires
	if !now.Before(b.ends) { // the tolerance is for clocks, and not for sessions
		return nil, claim, closed(p, id.name, &auth.Error{Kind: auth.Expired, At: b.ends})
	}
	one := &session{policy: id.name, issuer: p.Issuer, subject: id.subject, ends: now.Add(sessionLife)}
	if b.refresh == "" && b.ends.Before(one.ends) {
		one.ends = b.ends
	}
	one.bearer.Store(b)
	return one, claim, nil
}
