package console

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/oauth2"

	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// failure is why a sign-in at a provider came to nothing.
type failure struct {
	status int
	// what happened, and what the user does now, as sentences.
	what, now string
	// cause is for the log, nil if what says it all.
	cause error
	// often is for what anybody brings about as often as he likes: the log has it at debug alone.
	often bool
}

func failed(status int, what, now string, cause error) *failure {
	return &failure{status: status, what: what, now: now, cause: cause}
}

func (f *failure) unpaced() *failure {
	f.often = true
	return f
}

// Error says what happened and why, for the log.
func (f *failure) Error() string {
	if f.cause == nil {
		return f.what
	}
	return f.what + " " + f.cause.Error()
}

const beginAgain = "Go back to the sign-in page and begin again."

var failurePage = template.Must(template.New("failure").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Busbar: not signed in</title>
<link rel="icon" href="/$console/pages/icon.svg">
<link rel="stylesheet" href="/$console/pages/style.css">
</head>
<body>
<main class="signin">
<h1><img src="/$console/pages/icon.svg" alt="">Busbar</h1>
<section role="alert">
<h2>You are not signed in</h2>
<p class="problem"><strong>Error: </strong>{{.What}}</p>
<p>{{.Now}}</p>
<p class="actions"><a class="button main" href="/">Back to the sign-in page</a></p>
</section>
</main>
</body>
</html>
`))

func (c *Console) log(r *http.Request, issuer string, f *failure) {
	level := hclog.Info
	if f.often {
		level = hclog.Debug
	}
	c.deps.Log.Log(level, "nobody is signed in to the console", "issuer", issuer, "remote", r.RemoteAddr, "error", f.Error())
}

// fail shows the page of a failure.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, issuer string, f *failure) {
	c.log(r, issuer, f)
	if !f.often {
		who := audit.Claimed("")
		who.Issuer = issuer
		c.audit(r, "console.sign-in", refusal.Unauthorized.String(), who, f.what)
	}
	var page bytes.Buffer
	if err := failurePage.Execute(&page, map[string]string{"What": f.what, "Now": f.now}); err != nil {
		refuse(w, f.status, f.what)
		return
	}
	w.Header().Set("Content-Type", kinds[".html"])
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(f.status)
	_, _ = w.Write(page.Bytes()) // the browser may be gone
}

// busy refuses a sign-in that would have this node ask a provider.
func busy() *failure {
	return failed(http.StatusTooManyRequests, "Too many sign-ins at identity providers fail, or are under way.",
		"Try again in a minute, or sign in with the key of a policy.", nil).unpaced()
}

func noSecret(err error) *failure {
	return failed(http.StatusInternalServerError, "The secret of this node at the identity provider cannot be read.",
		"Tell who runs this node to look at client-secret-file.", err)
}

// unreachable is a provider that does not answer, or not as one does.
func unreachable(issuer string, err error) *failure {
	return failed(http.StatusBadGateway, fmt.Sprintf("The identity provider %s does not answer as one does: %s.", issuer, clip(words(err))),
		"Try again in a minute, or sign in with the key of a policy. If it stays so, tell who runs this node.", err)
}

// unpaid is a code that the provider did not give tokens for.
func unpaid(issuer string, err error) *failure {
	told := (*oauth2.RetrieveError)(nil)
	switch isTold := errors.As(err, &told); {
	case !isTold:
		return unreachable(issuer, err)
	case told.ErrorCode == "": // the answer itself stays out of the page and the log
		return unreachable(issuer, fmt.Errorf("its place for tokens answers %s", told.Response.Status))
	}
	why := told.ErrorCode
	if told.ErrorDescription != "" {
		why += ": " + told.ErrorDescription
	}
	cause := errors.New(clip(why))
	switch told.ErrorCode {
	case "invalid_grant":
		return failed(http.StatusUnauthorized, "The identity provider takes its code no more ("+clip(why)+"). A code counts once, and for a short time.",
			beginAgain, cause)
	case "invalid_client", "unauthorized_client":
		return failed(http.StatusBadGateway, "The identity provider does not know this node as its client ("+clip(why)+").",
			"Tell who runs this node: client-id and client-secret-file below sign-in must be those of the provider.", cause)
	}
	return failed(http.StatusBadGateway, "The identity provider gives no token ("+clip(why)+").", "Tell who runs this node.", cause)
}

// refusedBy is an answer of the provider that says no (RFC 6749 section 4.1.2.1).
func refusedBy(issuer, code, description string) *failure {
	why := code
	if description != "" {
		why += ": " + description
	}
	now := "Tell who runs this node what the provider said."
	switch code {
	case "access_denied":
		now = "Begin again and consent, or ask who runs the provider to let you use this application."
	case "temporarily_unavailable", "server_error":
		now = "Try again in a minute, or sign in with the key of a policy."
	case "invalid_scope":
		now = "Tell who runs this node: the provider does not know one of the scopes below sign-in."
	}
	return failed(http.StatusForbidden, fmt.Sprintf("The identity provider %s refused (%s).", issuer, clip(why)), now, nil)
}

// closed is a token that opens nothing here.
func closed(p *Provider, who string, err error) *failure {
	token := "access token"
	if p.IDToken {
		token = "ID token"
	}
	f := &failure{status: http.StatusForbidden, cause: err, now: "Tell who runs this node."}
	switch {
	case errors.Is(err, auth.ErrEmpty):
		f.what = fmt.Sprintf("%s signed you in as %s, and you have no right here.", p.Issuer, clip(who))
		f.now = "Ask who runs this node for a grant, and sign in again."
	case errors.Is(err, auth.ErrWrongAudience):
		f.what = fmt.Sprintf("The %s of %s is for another audience.", token, p.Issuer)
		f.now = "Tell who runs this node: audiences of the issuer must name that of the token, or scopes must ask for a token of one of them."
	case errors.Is(err, auth.ErrMalformed), errors.Is(err, auth.ErrNotSupported):
		f.what = fmt.Sprintf("The %s of %s is no JSON web token, and this node cannot judge it.", token, p.Issuer)
		f.now = "Tell who runs this node: scopes must ask for an access token that is one, or sign-in must say token: id."
	case errors.Is(err, auth.ErrUnknownKey):
		f.status = http.StatusServiceUnavailable
		f.what = fmt.Sprintf("This node does not have the key yet that %s signs with.", p.Issuer)
		f.now = "Begin again in half a minute."
	case errors.Is(err, auth.ErrExpired):
		f.what = fmt.Sprintf("The %s of %s is over already, or begins later.", token, p.Issuer)
		f.now = "Tell who runs this node: its clock and that of the provider differ."
	default:
		f.what = fmt.Sprintf("The %s of %s is not good: %s", token, p.Issuer, strings.TrimSuffix(auth.TextOf(err), ".")+".")
	}
	return f
}

// words takes the end of a chain of errors, where a network says what is wrong.
func words(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op
	}
	return strings.TrimSuffix(strings.TrimSpace(err.Error()), ".")
}
