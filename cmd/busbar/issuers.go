package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/auth"
)

// issuer is an OpenID Connect provider whose tokens open this broker.
type issuer struct {
	Name      string  `yaml:"name"`
	Audiences list    `yaml:"audiences"`
	Keys      string  `yaml:"keys"` // file or URL of a key set; by default what the issuer announces
	Grants    []grant `yaml:"grants"`
	// SignIn has people sign in to the console there; nil for an issuer of tokens alone.
	SignIn *issuerSignIn `yaml:"sign-in"`
}

// grant gives rights to the bearers of a claim.
type grant struct {
	Claim  string `yaml:"claim"`
	Value  string `yaml:"value"`
	Entity string `yaml:"entity"`
	Rights list   `yaml:"rights"`
}

// resolve turns the configuration into what tokens are checked against.
func (i *issuer) resolve() (auth.Issuer, error) {
	out := auth.Issuer{Name: i.Name, Audiences: i.Audiences}
	if len(out.Audiences) == 0 {
		out.Audiences = []string{auth.AzureAudience}
	}
	for _, g := range i.Grants {
		rights, err := parseRights(g.Rights)
		if err != nil {
			return out, fmt.Errorf("issuer %s: grant %s: %w", i.Name, g.Value, err)
		}
		out.Grants = append(out.Grants, auth.Grant{
			Claim: g.Claim, Value: g.Value, Entity: g.Entity, Rights: rights,
		})
	}
	if len(out.Grants) == 0 {
		out.Grants = auth.AzureRoles()
	}
	if i.isFile() {
		return out, out.Validate()
	}
	for _, text := range []string{i.Keys, i.Name} {
		if text == "" {
			continue
		}
		if err := safeURL(text); err != nil {
			return out, fmt.Errorf("issuer %s: keys come from no file, and from no safe place: %w", i.Name, err)
		}
		break // a name is fetched from only if there is no URL of keys
	}
	return out, out.Validate()
}

func (i *issuer) isFile() bool { return i.Keys != "" && !strings.Contains(i.Keys, "://") }

// safeURL returns why somebody on the way could change what comes from a URL. Keys that are changed sign any token.
func safeURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("%q is no URL", text)
	}
	if u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && loopbackHost(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%q is neither https, nor http on loopback", text)
}

// keyring fetches the keys of issuers.
type keyring struct {
	issuers  []issuer
	policies *auth.Policies
	client   *http.Client
	log      hclog.Logger

	// Of one owner at a time: the opening and the closing of the node, and its reloader between them.
	stop func()
}

// replace fetches the keys of these issuers from now on, until ctx ends, and those of no others.
func (k *keyring) replace(ctx context.Context, issuers []issuer) {
	if k.stop != nil {
		k.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	k.issuers = issuers
	done := make(chan struct{})
	go func() { defer close(done); k.run(ctx) }()
	k.stop = func() { cancel(); <-done }
}

const (
	// keysEvery is how often keys are fetched anyway: an issuer that takes one back expects it within
	// the hour or so.
	keysEvery = time.Hour
	// keysPause is the least pause between two fetches that strangers' tokens ask for.
	keysPause = 30 * time.Second
	// keysRetry and keysRetryMax bound the growing pauses after a failure.
	keysRetry    = time.Second
	keysRetryMax = time.Minute
	keysTimeout  = 10 * time.Second
)

// resolveIssuers turns all issuers into what tokens are checked against.
func resolveIssuers(all []issuer) ([]auth.Issuer, error) {
	var resolved []auth.Issuer
	for _, i := range all {
		one, err := i.resolve()
		if err != nil {
			return nil, err
		}
		resolved = append(resolved, one)
	}
	return resolved, auth.CheckIssuers(resolved)
}

// newKeyClient follows redirections to safe places only.
func newKeyClient() *http.Client {
	return &http.Client{Timeout: keysTimeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 5 {
			return errors.New("too many redirections")
		}
		return safeURL(r.URL.String())
	}}
}

// run fetches the keys of all issuers until ctx ends. Each issuer has a goroutine, so that one that is slow or gone
// delays no other.
func (k *keyring) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, i := range k.issuers {
		all.Go(func() { k.follow(ctx, i) })
	}
	all.Wait()
}

// follow fetches the keys of one issuer now, every hour, and when a token names a key that is not known.
func (k *keyring) follow(ctx context.Context, i issuer) {
	retry := keysRetry
	for {
		if err := k.fetch(ctx, i); err != nil {
			if ctx.Err() == nil {
				k.log.Warn("fetch keys", "issuer", i.Name, "error", err, "retry_in", retry)
			}
			if !sleep(ctx, retry, nil) {
				return
			}
			retry = min(2*retry, keysRetryMax)
			continue
		}
		retry = keysRetry
		if !sleep(ctx, keysPause, nil) || !sleep(ctx, keysEvery-keysPause, k.policies.KeysWanted(i.Name)) {
			return
		}
	}
}

// sleep waits for d or until something is received; false if ctx ends first.
func sleep(ctx context.Context, d time.Duration, sooner <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-sooner:
	case <-ctx.Done():
		return false
	}
	return true
}

// fetch gives the policies the present keys of an issuer.
func (k *keyring) fetch(ctx context.Context, i issuer) error {
	var document []byte
	var err error
	switch {
	case i.isFile():
		document, err = readBounded(i.Keys)
	case i.Keys != "":
		document, err = k.get(ctx, i.Keys)
	default:
		document, err = k.discover(ctx, i.Name)
	}
	if err != nil {
		return fmt.Errorf("keys of issuer %s: %w", i.Name, err)
	}
	return k.policies.SetKeys(i.Name, document)
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, auth.MaxKeySetBytes+1))
}

// discover asks the issuer where its keys are (OpenID Connect Discovery 1.0 section 4).
func (k *keyring) discover(ctx context.Context, name string) ([]byte, error) {
	text, err := k.get(ctx, strings.TrimRight(name, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var c struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	// Section 4.3: it must be the one that was asked. One tenant's document may name all tenants.
	if !slices.Contains([]string{name, strings.TrimRight(name, "/"), name + "/"}, c.Issuer) {
		return nil, fmt.Errorf("its configuration names another issuer: %q", c.Issuer)
	}
	if err := safeURL(c.Keys); err != nil {
		return nil, err
	}
	return k.get(ctx, c.Keys)
}

func (k *keyring) get(ctx context.Context, from string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	res, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", from, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, auth.MaxKeySetBytes+1))
}
