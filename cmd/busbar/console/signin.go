package console

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

const (
	// maxSignIn bounds the body of a request to sign in.
	maxSignIn = 8 << 10
	// maxEntity is the length of an entity's path.
	maxEntity = 1024
	// pacePerSecond and paceAtOnce bound the attempts to sign in that fail. Keys are long and drawn by chance; the
	// bound keeps the log and the processor for others.
	pacePerSecond, paceAtOnce = 1, 20
)

// pace bounds how often something may fail.
type pace struct {
	now func() time.Time

	mu   sync.Mutex
	left float64
	at   time.Time
}

func newPace(now func() time.Time) *pace { return &pace{now: now, left: paceAtOnce, at: now()} }

// may reports whether there is room for a failure.
func (p *pace) may() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.left = min(paceAtOnce, p.left+now.Sub(p.at).Seconds()*pacePerSecond)
	p.at = now
	return p.left >= 1
}

func (p *pace) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
}

// signIn is what the page sends.
type signIn struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	// Entity is the queue or topic whose policy it is, "" for the namespace.
	Entity string `json:"entity"`
	// Development asks for the key of a development node, by a click on its own host.
	Development bool `json:"development"`
}

// signedIn is what a page is told of its session. It has no key and no token.
type signedIn struct {
	SignedIn bool   `json:"signedIn"`
	Policy   string `json:"policy,omitempty"`
	// Scope is the entity that the session is for, "" for the namespace; Rights are those on it.
	Scope  string   `json:"scope,omitempty"`
	Rights []string `json:"rights,omitempty"`
	// Entities are the rights on entities besides.
	Entities []entityRights `json:"entities,omitempty"`
	Ends     *time.Time     `json:"ends,omitempty"`
	// Issuer is the provider of who signed in at one.
	Issuer string `json:"issuer,omitempty"`
	// Development says that one click signs in here, Providers are those that sign in here.
	Development bool      `json:"development"`
	Providers   []offered `json:"providers,omitempty"`
	// Leave is where somebody who has signed out here signs out at the provider.
	Leave   string `json:"leave,omitempty"`
	Version string `json:"version"`
}

// entityRights are the rights on one entity.
type entityRights struct {
	Path   string   `json:"path"`
	Rights []string `json:"rights"`
}

func rightWords(rights auth.Right) (all []string) {
	for _, right := range [...]auth.Right{auth.Listen, auth.Send, auth.Manage} {
		if rights&right != 0 {
			all = append(all, right.String())
		}
	}
	return all
}

// serveSession tells of a session, begins one, and ends it.
func (c *Console) serveSession(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		one, claim, _ := c.session(r, true)
		answer(w, http.StatusOK, c.tell(r, one, claim))
	case http.MethodPost:
		c.signIn(w, r)
	case http.MethodDelete:
		one, claim, secret := c.session(r, false)
		if one != nil {
			c.audit(r, "console.sign-out", audit.OK, audit.WhoOf(claim), "")
		}
		c.sessions.end(secret)
		http.SetCookie(w, c.cookie(r, "", -1))
		out := c.tell(r, nil, auth.Claim{})
		if one != nil && one.issuer != "" {
			out.Leave = c.leave(r, one)
		}
		answer(w, http.StatusOK, out)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "A session takes GET, POST and DELETE.")
	}
}

func (c *Console) tell(r *http.Request, one *session, claim auth.Claim) signedIn {
	out := signedIn{Version: c.deps.Version, Providers: c.offers()}
	if c.deps.Developer != nil {
		_, _, out.Development = c.deps.Developer(r)
	}
	if one == nil {
		return out
	}
	out.SignedIn, out.Policy, out.Scope, out.Ends, out.Issuer = true, one.policy, one.scope, &one.ends, one.issuer
	out.Rights = rightWords(claim.Rights)
	if one.issuer != "" {
		claim.Entities(func(path string, rights auth.Right) {
			out.Entities = append(out.Entities, entityRights{path, rightWords(rights)})
		})
	}
	return out
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if !c.attempts.may() {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "Too many attempts have failed. Wait a second.")
		return
	}
	ask, err := readSignIn(w, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if ask.Development {
		var ok bool
		if c.deps.Developer != nil {
			ask.Policy, ask.Key, ok = c.deps.Developer(r)
		}
		if !ok {
			refuse(w, http.StatusForbidden, "One click signs in on the host of a development node alone.")
			return
		}
	}
	one, claim, err := c.open(ask)
	if err != nil {
		c.attempts.failed()
		c.audit(r, "console.sign-in", refusal.Unauthorized.String(), audit.Claimed(c.deps.Policies.ClaimedName(ask.Policy)), "")
		c.deps.Log.Info("nobody is signed in to the console", "policy", ask.Policy, "remote", r.RemoteAddr, "error", err)
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	}
	if cookie, err := r.Cookie(c.cookieName(r)); err == nil {
		c.sessions.end(cookie.Value)
	}
	http.SetCookie(w, c.cookie(r, c.sessions.begin(one), int(sessionLife.Seconds())))
	c.audit(r, "console.sign-in", audit.OK, audit.WhoOf(claim), "")
	c.deps.Log.Info("signed in to the console", "policy", one.policy, "entity", one.scope, "remote", r.RemoteAddr)
	answer(w, http.StatusOK, c.tell(r, one, claim))
}

// audit records that somebody came, went, or was not let in.
func (c *Console) audit(r *http.Request, action, outcome string, who audit.Who, reason string) {
	c.deps.Audit.Record(audit.Event{Action: action, Outcome: outcome, Who: who, Via: audit.ViaConsole, Agent: r.UserAgent(),
		Remote: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Reason: reason})
}

// readSignIn reads the body. A form of another site cannot send JSON, so it must be JSON.
func readSignIn(w http.ResponseWriter, r *http.Request) (*signIn, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, sentence("Sign in with a body of the type application/json.")
	}
	ask := new(signIn)
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignIn))
	in.DisallowUnknownFields()
	if err := in.Decode(ask); err != nil {
		return nil, sentencef("The body is no request to sign in: %v.", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, sentence("Something follows the request to sign in.")
	}
	ask.Policy, ask.Entity = strings.TrimSpace(ask.Policy), strings.Trim(strings.TrimSpace(ask.Entity), "/")
	ask.Key = strings.TrimSpace(ask.Key)
	switch {
	case ask.Development:
		return ask, nil
	case ask.Policy == "":
		return nil, sentence("Name a policy.")
	case len(ask.Policy) > auth.MaxPolicyNameBytes:
		return nil, sentence("The name of the policy is too long.")
	case ask.Key == "":
		return nil, sentence("Give the key of the policy.")
	case len(ask.Key) > auth.MaxKeyBytes:
		return nil, sentence("The key is too long.")
	case len(ask.Entity) > maxEntity || strings.ContainsAny(ask.Entity, "?#%"):
		return nil, sentence("This is no path of a queue or topic.")
	}
	return ask, nil
}

// open makes the token of a session, and has it judged as that of any client. Without an entity the key may be that of the
// namespace, or of the one entity that has such a policy.
func (c *Console) open(ask *signIn) (*session, auth.Claim, error) {
	wrong := sentence("No policy has this name and this key.")
	scope := ask.Entity
	if scope == "" {
		claim, err := c.deps.Policies.VerifyPlain(ask.Policy, ask.Key)
		if err != nil {
			return nil, auth.Claim{}, wrong
		}
		scope = claim.Scope
	}
	now := c.deps.Now()
	one := &session{policy: ask.Policy, scope: scope, ends: now.Add(sessionLife)}
	b := &bearer{token: auth.NewToken("sb://localhost/"+scope, ask.Policy, ask.Key, one.ends.Add(time.Minute))}
	one.bearer.Store(b)
	claim, err := c.deps.Policies.Verify(b.token, now)
	if err != nil {
		return nil, auth.Claim{}, wrong
	}
	return one, claim, nil
}
