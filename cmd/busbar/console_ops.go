package main

import (
	"net/http"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/console"
)

// withConsole serves the web console in front of the operations port. The request of a page goes through the checks of
// tokens like that of any client.
func (n *node) withConsole(port http.Handler, guard *hostGuard) (http.Handler, error) {
	if !n.cfg.Console {
		return port, nil
	}
	deps := console.Deps{Port: port, Policies: n.policies, Own: guard.own, Node: string(n.id)[:8], Version: programVersion(),
		Now: time.Now, Closing: n.background.Done(), Audit: n.audit, Log: n.log.Named("console"),
		Providers: n.providers, Web: newProviderClient(), Safe: func(place string) bool { return safeURL(place) == nil }}
	if n.cfg.Dev {
		deps.Developer = n.developer
	}
	c, err := console.New(deps)
	if err != nil {
		return nil, err
	}
	return c.Handler(port), nil
}

// providers are those of the configuration as it is now.
func (n *node) providers() []console.Provider {
	all, err := signInProviders(n.reloader.running.Load().Issuers)
	if err != nil { // a file has changed since the configuration was checked
		n.log.Warn("an identity provider is left out", "error", err)
	}
	return all
}

// developer returns the key that the greeting shows, for requests of this host. It is the key that everybody knows; another
// one is given to nobody.
func (n *node) developer(r *http.Request) (name, key string, ok bool) {
	p, manages := forDeveloper(n.cfg.Policies)
	if string(p.Primary) != devKey || !manages || !fromLoopback(r) {
		return "", "", false
	}
	return p.Name, string(p.Primary), true
}
