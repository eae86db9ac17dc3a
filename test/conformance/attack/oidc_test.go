package attack

import (
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

const unauthorized = "amqp:unauthorized-access"

// What a client is told of a token that is refused.
const (
	badSignature = "InvalidSignature: The token has an invalid signature."
	malformed    = "MalformedToken: The token is malformed."
	expired      = "ExpiredToken: The token is expired."
)

// forgery is a token and the text of its refusal.
type forgery struct{ token, text string }

// forgeries are tokens of which none may open anything.
func forgeries(k *keyServer) map[string]forgery {
	one, whichever := map[string]any{"alg": "RS256", "kid": "one"}, map[string]any{"alg": "RS256", "kid": "any"}
	with := func(pairs ...any) map[string]any {
		h := maps.Clone(one)
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i].(string)] = pairs[i+1]
		}
		return h
	}
	good := claims("good")
	gone := time.Now().Add(-time.Hour)
	whole := rs256(k.good, one, good)
	pieces := strings.Split(whole, ".")
	all := map[string]forgery{
		"expired": {rs256(k.good, one, claims("good", "exp", gone.Unix())),
			expired + " Expiration time: '" + gone.UTC().Format("2006-01-02 15:04:05Z") + "'."},
		"not yet valid":          {rs256(k.good, one, claims("good", "nbf", time.Now().Add(time.Hour).Unix())), expired},
		"nbf is a text":          {rs256(k.good, one, claims("good", "nbf", "0")), expired},
		"no exp":                 {rs256(k.good, one, claims("good", "exp", nil)), malformed},
		"exp is a text":          {rs256(k.good, one, claims("good", "exp", "99999999999")), malformed},
		"another audience":       {rs256(k.good, one, claims("good", "aud", "https://vault.azure.net")), "InvalidAudience: The token is for another audience."},
		"no audience":            {rs256(k.good, one, claims("good", "aud", nil)), "InvalidAudience: The token is for another audience."},
		"the audience as AUD":    {rs256(k.good, one, claims("good", "aud", nil, "AUD", tokenAudience)), "InvalidAudience: The token is for another audience."},
		"another issuer":         {rs256(k.good, one, claims("nobody")), "InvalidIssuer: The issuer of the token is not trusted."},
		"no issuer":              {rs256(k.good, one, claims("good", "iss", nil)), "InvalidIssuer: The issuer of the token is not trusted."},
		"a list of issuers":      {rs256(k.good, one, claims("good", "iss", []string{"https://issuer.test/good"})), "InvalidIssuer: The issuer of the token is not trusted."},
		"no role":                {rs256(k.good, one, claims("good", "roles", nil)), "claim is empty."},
		"unknown kid":            {rs256(k.good, with("kid", "two"), good), badSignature},
		"kid is a path":          {rs256(k.good, with("kid", "../../../../dev/null"), good), badSignature},
		"the attacker's key":     {rs256(k.evil, one, good), badSignature},
		"its key in the header":  {rs256(k.evil, with("jwk", jwkOf(&k.evil.PublicKey, "one", "RS256")), good), badSignature},
		"its keys by jku":        {rs256(k.evil, with("jku", k.URL+"/captured", "x5u", k.URL+"/captured"), good), badSignature},
		"a critical extension":   {rs256(k.good, with("crit", []string{"exp"}), good), malformed},
		"RS512 over RS256":       {rs256(k.good, map[string]any{"alg": "RS512", "kid": "any"}, good), badSignature},
		"PS256 over RS256":       {rs256(k.good, map[string]any{"alg": "PS256", "kid": "any"}, good), badSignature},
		"ES256 over an RSA key":  {rs256(k.good, map[string]any{"alg": "ES256", "kid": "any"}, good), badSignature},
		"no algorithm":           {rs256(k.good, map[string]any{"kid": "any"}, good), badSignature},
		"an algorithm as a list": {rs256(k.good, map[string]any{"alg": []string{"RS256"}, "kid": "any"}, good), badSignature},
		"the claims exchanged":   {pieces[0] + "." + part(claims("good", "oid", "root")) + "." + pieces[2], badSignature},
		"the header exchanged":   {part(whichever) + "." + pieces[1] + "." + pieces[2], badSignature},
		"without a signature":    {pieces[0] + "." + pieces[1] + ".", badSignature},
		"two parts":              {pieces[0] + "." + pieces[1], malformed},
		"four parts":             {whole + ".AAAA", malformed},
		"20,000 bytes":           {whole + strings.Repeat("A", 20_000), malformed},
		"a nest of lists":        {pieces[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 11_000))) + ".AAAA", malformed},
	}
	for _, none := range []string{"none", "None", "NONE", "nOnE", ""} {
		for _, kid := range []string{"one", "any"} {
			all[fmt.Sprintf("alg %q of %s", none, kid)] = forgery{
				part(map[string]any{"alg": none, "kid": kid}) + "." + part(good) + ".", badSignature}
		}
		all[fmt.Sprintf("alg %q without kid", none)] = forgery{part(map[string]any{"alg": none}) + "." + part(good) + ".", badSignature}
	}
	for form, secret := range publicForms(&k.good.PublicKey) {
		for _, kid := range []string{"one", "any"} {
			all["HS256 with the public key as "+form+" of "+kid] = forgery{
				hs256(secret, map[string]any{"alg": "HS256", "kid": kid}, good), badSignature}
		}
	}
	for _, issuer := range badIssuers {
		key := k.evil
		if issuer == "small" {
			key = k.small
		}
		all["the issuer whose keys are: "+issuer] = forgery{
			rs256(key, map[string]any{"alg": "RS256", "kid": "evil"}, claims(issuer)), badSignature}
	}
	return all
}

func address(queue string) string { return "sb://localhost/" + queue }

// stranger is a connection without a key and its links to $cbs.
func (a *attack) stranger(n *cluster.Node) (*raw.Client, *raw.Asker, error) {
	c, err := raw.DialAs(a.ctx, n, raw.Plain, raw.Anonymous())
	if err != nil {
		return nil, nil, fmt.Errorf("connect without a key: %w", err)
	}
	a.sockets.Add(1)
	tokens, err := c.Tokens()
	if err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("attach to $cbs: %w", err)
	}
	return c, tokens, nil
}

// Tokens of an OpenID Connect provider that are forged, of another time, place or issuer, and those of issuers whose
// keys come slowly, without end or from elsewhere: each is refused for its reason and opens nothing. A good token works meanwhile.
func TestForgedTokensOpenNothing(t *testing.T) {
	onClusters(t, func(a *attack) string {
		k := ground.keys
		for _, n := range a.c.Nodes {
			a.await("the keys of the good issuer are known", func() bool { return a.enters(n, "") })
		}
		over, end := context.WithCancel(a.ctx)
		var beside sync.WaitGroup
		sent := make([]int, len(a.c.Nodes))
		for i, n := range a.c.Nodes {
			beside.Go(func() {
				for ; over.Err() == nil; sent[i]++ {
					if !a.enters(n, fmt.Sprint(n.ID, " ", sent[i])) {
						a.Errorf("%s: a good token does not open the queue", n.ID)
						return
					}
				}
			})
		}
		all := forgeries(k)
		names := slices.Sorted(maps.Keys(all))
		rounds := size(1, 20)
		for round := range rounds {
			// Beside each other, as the refusals of repeated attaches are held back for a second.
			a.each(len(names), func(i int) error { return a.forge(a.c.Pick(round+i), names[i], all[names[i]]) })
		}
		end()
		beside.Wait()
		a.onlyGood(sent)
		if n := k.captured.Load(); n > 0 {
			a.Errorf("%d requests went where a token or a redirection sent them", n)
		}
		if k.asked.Load() == 0 || k.looped.Load() == 0 || k.written.Load() > 32<<20 {
			a.Errorf("%d requests for the endless set, of which one took %d bytes; %d of the loop", k.asked.Load(), k.written.Load(), k.looped.Load())
		}
		return fmt.Sprintf("%d tokens", rounds*len(names))
	})
}

// forge shows a token over AMQP and HTTP.
func (a *attack) forge(n *cluster.Node, name string, f forgery) error {
	c, tokens, err := a.stranger(n)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := tokens.PutTokenOf("jwt", address(a.queue), f.token)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if got.Code != 401 || got.Condition != unauthorized || !strings.HasPrefix(got.Text, f.text) {
		a.Errorf("%s: put-token: %d %s %q, want 401 %s %q", name, got.Code, got.Condition, got.Text, unauthorized, f.text)
	}
	if _, err := c.Sender(a.queue); raw.Condition(err) != unauthorized {
		a.Errorf("%s: a sender: %v", name, err)
	}
	if _, err := c.Receiver(a.queue, nil); raw.Condition(err) != unauthorized {
		a.Errorf("%s: a receiver: %v", name, err)
	}
	code, text, err := a.post(n, "Bearer "+f.token)
	if code != 401 || !strings.Contains(html.UnescapeString(text), f.text) {
		a.Errorf("%s: POST: %d %s, want 401 %s", name, code, text, f.text)
	}
	return err
}

// post sends a message over HTTP and returns the answer.
func (a *attack) post(n *cluster.Node, authorization string) (int, string, error) {
	r, err := http.NewRequestWithContext(a.ctx, http.MethodPost, "http://"+n.AMQP+"/"+a.queue+"/messages", strings.NewReader("forged"))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", authorization)
	r.Close = true
	a.sockets.Add(1)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, string(text), err
}

// enters reports whether a good token opens the queue through a node. If body is not empty, it is sent.
func (a *attack) enters(n *cluster.Node, body string) bool {
	c, tokens, err := a.stranger(n)
	if err != nil {
		return false
	}
	defer c.Close()
	got, err := tokens.PutTokenOf("jwt", address(a.queue), rs256(ground.keys.good, map[string]any{"alg": "RS256", "kid": "one"}, claims("good")))
	if err != nil || got.Code != 202 {
		return false
	}
	s, err := c.Sender(a.queue)
	if err != nil || body == "" {
		return err == nil
	}
	_, err = c.Deliver(s.Handle, nil, amqp.AppendData(nil, []byte(body)))
	return err == nil
}

// onlyGood demands that the queue holds what the good tokens sent, in order, and nothing else.
func (a *attack) onlyGood(sent []int) {
	a.Helper()
	c, err := raw.Dial(a.ctx, a.c.Nodes[0], raw.Plain)
	a.must("connect", err)
	defer c.Close()
	r, err := c.Receiver(a.queue, nil)
	a.must("receiver", err)
	want := map[string]bool{}
	for i, n := range a.c.Nodes {
		for j := range sent[i] {
			want[fmt.Sprint(n.ID, " ", j)] = true
		}
	}
	if len(want) < 5*len(a.c.Nodes) {
		a.Errorf("%d messages were sent with good tokens", len(want))
	}
	for len(want) > 0 {
		m, err := c.Receive(r.Handle)
		a.must("receive", err)
		if !want[m.Body] {
			a.Fatalf("%q was in the queue", m.Body)
		}
		delete(want, m.Body)
		_, err = c.Settle(m.ID, amqp.Accepted{})
		a.must("complete", err)
	}
	a.empty(a.queue)
}

// empty demands that a queue holds no message.
func (a *attack) empty(queue string) {
	a.Helper()
	admin, err := a.c.Nodes[0].Admin(false)
	a.must("admin client", err)
	got, err := admin.GetQueueRuntimeProperties(a.ctx, queue, nil)
	a.must("properties of the queue", err)
	if got.TotalMessageCount != 0 {
		a.Errorf("%s holds %d messages", queue, got.TotalMessageCount)
	}
}
