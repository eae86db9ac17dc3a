package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/oauth2"
)

const (
	// renewBefore is how long before the end of a token a new one is asked for.
	renewBefore = time.Minute
	// renewPause is the least pause between two attempts to renew a token.
	renewPause = 5 * time.Second
)

// due reports whether a new token should be asked for.
func (b *bearer) due(now time.Time) bool {
	early := min(renewBefore, b.ends.Sub(b.begins)/2)
	return b.refresh != "" && !now.Before(b.ends.Add(-early)) && !now.Before(b.again)
}

// renew asks the provider for a new token when that of a session is about to end. While it holds, one request of the
// session asks and the others go on.
func (c *Console) renew(r *http.Request, one *session) {
	now := c.deps.Now()
	b := one.bearer.Load()
	if !b.due(now) {
		return
	}
	if now.Before(b.ends) {
		if !one.renewing.TryLock() {
			return
		}
	} else {
		one.renewing.Lock()
	}
	defer one.renewing.Unlock()
	if b = one.bearer.Load(); !b.due(now) {
		return
	}
	// A provider may take a refresh token once: a page that goes away must not lose the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), providerWait)
	defer cancel()
	fresh, err := c.renewed(ctx, one, b)
	if err != nil {
		kept := *b
		if told := (*oauth2.RetrieveError)(nil); errors.As(err, &told) {
			if told.ErrorCode != "" {
				kept.refresh = "" // the provider has said no
			}
			err = unpaid(one.issuer, err)
		}
		c.deps.Log.Info("the token of a session is not renewed", "issuer", one.issuer, "error", err.Error())
		kept.again = c.deps.Now().Add(renewPause)
		fresh = &kept
	}
	one.bearer.Store(fresh)
}

func (c *Console) renewed(ctx context.Context, one *session, b *bearer) (*bearer, error) {
	p, err := c.provider(one.issuer)
	if err != nil {
		return nil, err
	}
	known, err := c.known.find(ctx, p.Issuer, providerKept)
	if err != nil {
		return nil, err
	}
	config, err := known.config(p, "")
	if err != nil {
		return nil, err
	}
	tokens, err := config.TokenSource(c.known.context(ctx), &oauth2.Token{RefreshToken: b.refresh}).Token()
	if err != nil {
		return nil, err
	}
	id := &person{subject: one.subject, name: one.policy}
	if p.IDToken || tokens.Extra("id_token") != nil {
		var f *failure
		if id, f = c.identity(ctx, known, p, tokens, ""); f != nil {
			return nil, f
		}
		if id.subject != one.subject { // OpenID Connect Core 1.0 section 12.2
			return nil, errors.New("the new ID token is of somebody else")
		}
	}
	next, _, f := c.admit(ctx, p, tokens, id)
	if f != nil {
		return nil, f
	}
	return next.bearer.Load(), nil
}
