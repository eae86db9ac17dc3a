package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/console"
	"github.com/busbar-mq/busbar/transport/auth"
)

// issuerSignIn has people sign in to the console at an issuer. The grants of the issuer say what they may do then.
type issuerSignIn struct {
	ClientID string `yaml:"client-id"`
	// ClientSecretFile has the secret of a confidential client. It is read at each use.
	ClientSecretFile string `yaml:"client-secret-file"`
	Scopes           list   `yaml:"scopes"`
	// Token is access or id: which token is judged.
	Token string `yaml:"token"`
	// Address is where browsers reach the operations port; by default what the browser called.
	Address string `yaml:"address"`
	Label   string `yaml:"label"`
}

const (
	accessToken = "access"
	idToken     = "id"
	// maxLabel is how many bytes of a label fit on a button.
	maxLabel = 60
	// maxClientSecret bounds the file of a secret.
	maxClientSecret = 4 << 10
)

// resolve fills in what is not said, and says what cannot work.
func (s *issuerSignIn) resolve(i *issuer, audiences []string) (console.Provider, error) {
	out := console.Provider{Issuer: i.Name, Label: s.Label, ClientID: s.ClientID, Scopes: slices.Clone(s.Scopes),
		Address: strings.TrimRight(s.Address, "/")}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("issuer %s: sign-in: %w", i.Name, fmt.Errorf(format, args...)))
	}
	if err := safeURL(i.Name); err != nil {
		bad("the name of the issuer is where people sign in: %w", err)
	}
	if s.ClientID == "" {
		bad("client-id is not set: it is the name of this broker at the issuer")
	}
	switch s.Token {
	case "", accessToken:
	case idToken:
		out.IDToken = true
		if !slices.Contains(audiences, s.ClientID) {
			bad("token is id, so audiences must have the client-id %q, which is the audience of an ID token", s.ClientID)
		}
	default:
		bad("token is %q, want access or id", s.Token)
	}
	if len(out.Scopes) == 0 {
		out.Scopes = []string{"openid", "profile"}
	}
	if !slices.Contains(out.Scopes, "openid") {
		out.Scopes = append([]string{"openid"}, out.Scopes...)
	}
	if s.ClientSecretFile != "" {
		out.Secret = func() (string, error) { return readClientSecret(s.ClientSecretFile) }
	}
	if s.Address != "" {
		u, err := url.Parse(out.Address)
		if err != nil || safeURL(out.Address) != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			bad("address is %q, want https://HOST:PORT, or http on loopback", s.Address)
		}
	}
	if out.Label == "" {
		if u, err := url.Parse(i.Name); err == nil {
			out.Label = u.Host
		}
	}
	if len(out.Label) > maxLabel {
		out.Label = strings.ToValidUTF8(out.Label[:maxLabel], "")
	}
	return out, errors.Join(errs...)
}

func readClientSecret(file string) (string, error) {
	text, err := readBounded(file)
	if err != nil {
		return "", fmt.Errorf("client-secret-file: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || len(secret) > maxClientSecret {
		return "", fmt.Errorf("client-secret-file %s has %d bytes, want 1 to %d", file, len(secret), maxClientSecret)
	}
	return secret, nil
}

// signInProviders are the providers of a configuration. Issuers without sign-in are none.
func signInProviders(issuers []issuer) (all []console.Provider, err error) {
	var errs []error
	for _, i := range issuers {
		if i.SignIn == nil {
			continue
		}
		resolved, err := i.resolve()
		if err != nil {
			continue // resolveIssuers says it
		}
		one, err := i.SignIn.resolve(&i, resolved.Audiences)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, one)
	}
	return all, errors.Join(errs...)
}

// checkSignIns says what is wrong with where people sign in. It reads the secrets. A browser must come back to a host that
// this node takes for its own.
func (c *Config) checkSignIns() error {
	all, err := signInProviders(c.Issuers)
	errs := []error{err}
	guard := newHostGuard(*c)
	for _, p := range all {
		if p.Secret != nil {
			if _, err := p.Secret(); err != nil {
				errs = append(errs, fmt.Errorf("issuer %s: sign-in: %w", p.Issuer, err))
			}
		}
		if u, err := url.Parse(p.Address); p.Address != "" && (err != nil || !guard.own(u.Host)) {
			errs = append(errs, fmt.Errorf("issuer %s: sign-in: address is %q, whose host is no name of this node: add it to allowed-hosts", p.Issuer, p.Address))
		}
	}
	return errors.Join(errs...)
}

// newProviderClient asks providers. A provider may wait for a browser, and not for this node: an answer is short, comes in
// time, and sends nobody elsewhere. A request to a place for tokens holds secrets, and must end there.
func newProviderClient() *http.Client {
	return &http.Client{Timeout: keysTimeout, Transport: safeTransport{http.DefaultTransport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// safeTransport refuses unsafe places, and bounds answers.
type safeTransport struct{ under http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s safeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := safeURL(r.URL.String()); err != nil {
		return nil, err
	}
	res, err := s.under.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, auth.MaxKeySetBytes), res.Body}
	return res, nil
}
