package console

import (
	"embed"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// Prefix begins every path of the console but the page itself. No entity has a name that begins so.
const Prefix = "/$console/"

const (
	sessionPath = Prefix + "session"
	eventsPath  = Prefix + "events"
	portPrefix  = Prefix + "port"
	pagesPrefix = Prefix + "pages/"
)

//go:embed pages
var files embed.FS

// Deps are what the console needs of the node.
type Deps struct {
	// Port is the handler of the operations port, with its own checks of tokens.
	Port     http.Handler
	Policies *auth.Policies
	// Own reports whether a host, with or without a port, cannot be a name that a stranger owns.
	Own func(host string) bool
	// Developer returns the name and the key with which a development node lets its own host sign in by a click. It is nil
	// for other nodes.
	Developer func(*http.Request) (name, key string, ok bool)
	// Providers are the identity providers that people sign in at, as the configuration has them now. It may be nil.
	Providers func() []Provider
	// Web asks providers: it follows no redirection, goes to safe places only, and bounds what it waits for and reads.
	Web *http.Client
	// Safe reports whether nobody on the way can read or change what goes to a URL.
	Safe func(place string) bool
	// Node tells apart the cookies of nodes on one host: cookies know no port.
	Node string
	// Version is that of the program, for the foot of the page.
	Version string
	Now     func() time.Time
	// Closing ends the streams of events.
	Closing <-chan struct{}
	// Audit has who signed in and out, and who was not let in; nil if no log is kept.
	Audit *audit.Log
	Log   hclog.Logger
}

// Console answers requests of browsers.
type Console struct {
	deps     Deps
	sessions *sessions
	attempts *pace
	// asked bounds the sign-ins at providers that fail. Keys have a pace of their own, and open the console when a provider
	// does not.
	asked   *pace
	known   *providers
	seal    *seal
	streams chan struct{}
	pages   map[string]*page
	every   time.Duration // between two events of a stream
	keyWait time.Duration // for a key that a provider has just begun to sign with
}

// New returns a console; it starts nothing.
func New(deps Deps) (*Console, error) {
	if deps.Port == nil || deps.Policies == nil || deps.Own == nil || deps.Node == "" || deps.Now == nil || deps.Log == nil {
		return nil, errors.New("console: a dependency is missing")
	}
	if deps.Providers != nil && (deps.Web == nil || deps.Safe == nil) {
		return nil, errors.New("console: providers need Web and Safe")
	}
	pages, err := loadPages(files)
	if err != nil {
		return nil, err
	}
	seal, err := newSeal()
	if err != nil {
		return nil, err
	}
	return &Console{deps: deps, sessions: newSessions(deps.Now), attempts: newPace(deps.Now), asked: newPace(deps.Now),
		known: newProviders(deps.Web, deps.Safe, deps.Now), seal: seal, pages: pages, streams: make(chan struct{}, maxStreams),
		every: eventsEvery, keyWait: keyWait}, nil
}

// Handler serves the console, and hands all other requests to next. A browser is shown the page at "/", where SDKs and
// other programs find what they found before.
func (c *Console) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/" && wantsPage(r):
			w.Header().Add("Vary", "Accept")
			c.serve(w, r, c.servePage)
		case path == answerPath:
			c.serve(w, r, c.serveAnswer)
		case !strings.HasPrefix(path, Prefix):
			next.ServeHTTP(w, r)
		case strings.HasPrefix(path, pagesPrefix):
			c.serve(w, r, c.servePage)
		case path == sessionPath:
			c.serve(w, r, c.serveSession)
		case path == signInPath:
			c.serve(w, r, c.serveSignIn)
		case path == eventsPath:
			c.serve(w, r, c.serveEvents)
		case strings.HasPrefix(path, portPrefix+"/"):
			c.serve(w, r, c.forward)
		default:
			c.serve(w, r, func(w http.ResponseWriter, r *http.Request) {
				refuse(w, http.StatusNotFound, "The console has no such path.")
			})
		}
	})
}

// wantsPage reports whether a request for "/" is that of a browser which shows what it gets. A program that names no
// media type, or has a token, is none.
func wantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		r.URL.RawQuery == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// serve answers a request that may come from a page of the console.
func (c *Console) serve(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	protect(w.Header())
	if err := c.check(r); err != nil {
		c.deps.Log.Debug("a request for the console is refused", "host", r.Host, "origin", r.Header.Get("Origin"),
			"remote", r.RemoteAddr, "error", err)
		refuse(w, http.StatusForbidden, err.Error())
		return
	}
	answer(w, r)
}
