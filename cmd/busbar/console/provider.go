package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Provider is an identity provider that people sign in at. The rights of its tokens are decided by
// [auth.Policies] alone, as for any client with such a token.
type Provider struct {
	// Issuer is the iss of its tokens, and where its configuration is announced.
	Issuer string
	// Label is what the button says.
	Label    string
	ClientID string
	// Secret returns the secret of a confidential client, "" for a public one. It is asked at each use, since secrets change.
	Secret func() (string, error)
	Scopes []string
	// IDToken has the ID token judged. Otherwise the access token is.
	IDToken bool
	// Address is where browsers reach this node, such as https://busbar.example.com:5300. "" takes the host of the request.
	Address string
}

const (
	// providerFresh is how old the announcement of a provider may be when a sign-in begins. A provider that has just gone
	// is told of by a page of ours.
	providerFresh = 5 * time.Second
	// providerKept is how old it may be in the midst of a sign-in, and when a token is renewed.
	providerKept = time.Hour
	// providerWait bounds each conversation with a provider.
	providerWait = 15 * time.Second
)

// announced is what a provider tells of itself (OpenID Connect Discovery 1.0 section 3).
type announced struct {
	provider *oidc.Provider
	at       time.Time
	basic    bool   // a client with a secret shows it in a header, as RFC 6749 section 2.3.1 asks for
	names    bool   // each answer names the issuer (RFC 9207)
	leave    string // where people sign out, "" if nowhere
}

// maxTalks bounds the conversations with providers that go on at a time: anybody may begin one.
const maxTalks = 16

// providers keeps what providers announced.
type providers struct {
	web  *http.Client
	safe func(place string) bool
	now  func() time.Time
	// talks has one for each conversation that goes on.
	talks chan struct{}

	mu     sync.Mutex
	known  map[string]*announced    // by issuer: as many as the configuration has had
	asking map[string]chan struct{} // by issuer: each holds one, who asks it for its announcement
}

func newProviders(web *http.Client, safe func(string) bool, now func() time.Time) *providers {
	return &providers{web: web, safe: safe, now: now, talks: make(chan struct{}, maxTalks), known: map[string]*announced{},
		asking: map[string]chan struct{}{}}
}

// talk takes a place for a conversation, and returns what gives it back; nil if there is none.
func (p *providers) talk() func() {
	select {
	case p.talks <- struct{}{}:
		return func() { <-p.talks }
	default:
		return nil
	}
}

// find returns what a provider announced, and asks it if that is older than age. Requests that want the same wait for one
// answer.
func (p *providers) find(ctx context.Context, issuer string, age time.Duration) (*announced, error) {
	if known := p.young(issuer, age); known != nil {
		return known, nil
	}
	p.mu.Lock()
	turn := p.asking[issuer]
	if turn == nil {
		turn = make(chan struct{}, 1)
		p.asking[issuer] = turn
	}
	p.mu.Unlock()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known := p.young(issuer, age); known != nil {
		return known, nil
	}
	fresh, err := p.ask(ctx, issuer)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.known[issuer] = fresh
	p.mu.Unlock()
	return fresh, nil
}

func (p *providers) young(issuer string, age time.Duration) *announced {
	if known := p.seen(issuer); known != nil && p.now().Sub(known.at) < age {
		return known
	}
	return nil
}

// ask reads the announcement of a provider, and judges the places that it names.
func (p *providers) ask(ctx context.Context, issuer string) (*announced, error) {
	provider, err := oidc.NewProvider(p.context(ctx), issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		Keys    string   `json:"jwks_uri"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Names   bool     `json:"authorization_response_iss_parameter_supported"`
		Leave   string   `json:"end_session_endpoint"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, fmt.Errorf("the announcement of %s: %w", issuer, err)
	}
	end := provider.Endpoint()
	if end.AuthURL == "" || end.TokenURL == "" || more.Keys == "" {
		return nil, fmt.Errorf("%s announces no place to sign in, none for tokens, or none for keys", issuer)
	}
	for _, place := range []string{end.AuthURL, end.TokenURL, more.Keys, more.Leave} {
		if place != "" && !p.place(issuer, place) {
			return nil, fmt.Errorf("%s announces %q, which is not https", issuer, clip(place))
		}
	}
	return &announced{provider: provider, at: p.now(), names: more.Names, leave: more.Leave,
		basic: len(more.Methods) == 0 || slices.Contains(more.Methods, "client_secret_basic")}, nil
}

// place judges where a provider sends browsers and this node: to https, or on the loopback to the loopback. A provider
// elsewhere has no business with the doors of this host.
func (p *providers) place(issuer, place string) bool {
	u, err := url.Parse(place)
	return err == nil && u.User == nil && p.safe(place) && (u.Scheme == "https" || strings.HasPrefix(issuer, "http://"))
}

// seen returns what a provider announced last, nil if nothing.
func (p *providers) seen(issuer string) *announced {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[issuer]
}

// context has both libraries use the client of the node.
func (p *providers) context(ctx context.Context) context.Context {
	return context.WithValue(oidc.ClientContext(ctx, p.web), oauth2.HTTPClient, p.web)
}

// config is what the flow needs of a provider.
func (a *announced) config(p *Provider, address string) (*oauth2.Config, error) {
	secret := ""
	if p.Secret != nil {
		var err error
		if secret, err = p.Secret(); err != nil {
			return nil, err
		}
	}
	end := a.provider.Endpoint()
	// A style that is guessed would show a code twice, and a code counts once.
	end.AuthStyle = oauth2.AuthStyleInParams
	if secret != "" && a.basic {
		end.AuthStyle = oauth2.AuthStyleInHeader
	}
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: secret, Endpoint: end, Scopes: p.Scopes,
		RedirectURL: address + answerPath}, nil
}

// provider returns the configured provider of an issuer.
func (c *Console) provider(issuer string) (*Provider, error) {
	if c.deps.Providers != nil {
		for _, p := range c.deps.Providers() {
			if p.Issuer == issuer {
				return &p, nil
			}
		}
	}
	return nil, errors.New("the configuration has no such provider")
}

// clip shortens what a stranger wrote, and takes out what is no sign.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if all := []rune(text); len(all) > maxShown {
		return string(all[:maxShown]) + "…"
	}
	return text
}

// maxShown is how many signs of a foreign text a page or the log shows.
const maxShown = 200
