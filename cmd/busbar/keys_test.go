package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/transport/auth"
)

// accessRule is an authorization rule of an entity, as clients write it.
func accessRule(name, primary, secondary string, rights ...string) string {
	return `<AuthorizationRule i:type="SharedAccessAuthorizationRule"><Rights><AccessRights>` +
		strings.Join(rights, "</AccessRights><AccessRights>") + `</AccessRights></Rights><KeyName>` + name +
		`</KeyName><PrimaryKey>` + primary + `</PrimaryKey><SecondaryKey>` + secondary +
		`</SecondaryKey></AuthorizationRule>`
}

// tries says what a key of an entity can do over AMQP: "send", "receive", "manage".
func tries(t *testing.T, target *dial.Target, entity string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := dial.Connect(ctx, target, entity, time.Minute)
	if err != nil {
		return "nothing"
	}
	defer w.Close()
	var can []string
	if s, err := w.Session.NewSender(ctx, entity, nil); err == nil {
		can = append(can, "send")
		if err := s.Send(ctx, amqp.NewMessage([]byte("m")), nil); err != nil {
			t.Errorf("an open link does not send: %v", err)
		}
	}
	if _, err := w.Session.NewReceiver(ctx, entity, nil); err == nil {
		can = append(can, "receive")
	}
	return strings.Join(can, ",")
}

func freshKey(t *testing.T) string {
	t.Helper()
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b[:])
}

// The keys of an entity that ATOM sets open that entity, over AMQP and HTTP, for what their rule
// allows; rotation, deletion of the rule and of the entity close it; no key is ever logged.
func TestKeysOfAnEntity(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	p1, s1, p2 := freshKey(t), freshKey(t), freshKey(t)
	l.put(t, "/other", "QueueDescription", "")
	rules := func(all ...string) string {
		return "<AuthorizationRules>" + strings.Join(all, "") + "</AuthorizationRules>"
	}
	l.put(t, "/Orders", "QueueDescription", rules(accessRule("app", p1, s1, "Send"),
		accessRule("worker", p1, s1, "Listen"), accessRule("owner", p1, s1, "Manage", "Send", "Listen")))
	check := func(when, name, key, entity, want string) {
		t.Helper()
		if got := tries(t, l.target(name, key), entity); got != want {
			t.Errorf("%s: %s with a key of %s can %q, want %q", when, entity, name, got, want)
		}
	}
	check("primary", "app", p1, "orders", "send")
	check("secondary", "app", s1, "Orders", "send")
	check("listen", "worker", p1, "orders", "receive")
	check("manage", "owner", p1, "orders", "send,receive")
	check("another entity", "owner", p1, "other", "nothing")
	check("another key", "app", p2, "orders", "nothing")

	http := func(when, name, key, method, path string, want int) {
		t.Helper()
		token := auth.NewToken("http://"+l.host+path, name, key, time.Now().Add(time.Minute))
		res, text := l.request(t, method, path, atomOf("QueueDescription", ""), token,
			"If-Match", "*")
		if res.StatusCode != want {
			t.Errorf("%s: %s %s as %s: %d %s", when, method, path, name, res.StatusCode, text)
		}
	}
	http("manage", "owner", s1, "GET", "/orders", 200)
	http("send", "app", p1, "GET", "/orders", 401)
	http("another entity", "owner", p1, "DELETE", "/other", 401)
	http("update", "owner", p1, "PUT", "/orders", 200)
	check("an update without rules keeps them", "app", p1, "orders", "send")

	// Rotation: the secondary key works while the primary is changed, and the other way about.
	l.put(t, "/orders", "QueueDescription", rules(accessRule("app", p2, s1, "Send")), "If-Match", "*")
	check("rotated", "app", p1, "orders", "nothing")
	check("rotated", "app", p2, "orders", "send")
	check("rotated", "app", s1, "orders", "send")
	check("a rule that was taken away", "worker", p1, "orders", "nothing")

	http("delete", devKeyName, devKey, "DELETE", "/orders", 200)
	l.put(t, "/orders", "QueueDescription", rules(accessRule("app", p1, p1, "Listen")))
	check("created anew", "app", p2, "orders", "nothing")
	check("created anew", "app", p1, "orders", "receive")

	log := l.log.String()
	for _, secret := range []string{p1, s1, p2, devKey, "sig="} {
		if strings.Contains(log, secret) {
			t.Error("the log tells a key or signature")
		}
	}
}

// A node that is started again lets clients in when it knows the keys of entities: an SDK does not try again when it is
// told that its key is wrong.
func TestKeysOfAnEntityCountAsSoonAsANodeServes(t *testing.T) {
	cfg, key := nodeConfig(t, nil), freshKey(t)
	t.Run("before", func(t *testing.T) {
		openLive(t, cfg).put(t, "/orders", "QueueDescription",
			"<AuthorizationRules>"+accessRule("app", key, key, "Send")+"</AuthorizationRules>")
	})
	n, err := openNode(t.Context(), cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer stopNode(t, n)
	if _, err := n.policies.Verify(auth.NewToken("sb://localhost/orders", "app", key, time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Errorf("when the node serves: %v", err)
	}
}

// The keys of a topic open its subscriptions; keys of a policy of the namespace work side by side.
func TestKeysOfATopicAndOfTheNamespace(t *testing.T) {
	listen := freshKey(t)
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.Policies = append(c.Policies, policy{Name: "reader", Primary: "x1", Secondary: secret(listen),
			Rights: list{"Listen"}})
	}))
	key := freshKey(t)
	l.put(t, "/t", "TopicDescription", "<AuthorizationRules>"+accessRule("app", key, key, "Listen")+
		"</AuthorizationRules>")
	l.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "")
	for _, tc := range []struct{ name, key, want string }{
		{"app", key, "receive"}, {"reader", listen, "receive"}, {"reader", "x1", "receive"},
		{"reader", key, "nothing"},
	} {
		if got := tries(t, l.target(tc.name, tc.key), "t/Subscriptions/s"); got != tc.want {
			t.Errorf("%s can %q, want %q", tc.name, got, tc.want)
		}
	}
	// Rules are read with Listen, and changed with Manage only.
	token := auth.NewToken("http://"+l.host+"/t", "app", key, time.Now().Add(time.Minute))
	for method, want := range map[string]int{"GET": 200, "DELETE": 401} {
		res, text := l.request(t, method, "/t/Subscriptions/s/Rules/$Default", "", token)
		if res.StatusCode != want {
			t.Errorf("%s a rule: %d %s", method, res.StatusCode, text)
		}
	}
}

// provider is an OpenID Connect provider with one key.
type provider struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	id    atomic.Pointer[string] // of its key
	asked chan struct{}          // receives when the keys are fetched
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{asked: make(chan struct{}, 100)}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	p.rename("one")
	mux := http.NewServeMux()
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	mux.HandleFunc("/tenant/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL+"/tenant", p.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(p.keys(t))
		select {
		case p.asked <- struct{}{}:
		default:
		}
	})
	return p
}

func (p *provider) rename(id string) { p.id.Store(&id) }

func (p *provider) keys(t *testing.T) []byte {
	t.Helper()
	point, err := p.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"keys": []map[string]string{{"kty": "EC", "crv": "P-256",
		"kid": *p.id.Load(), "x": base64.RawURLEncoding.EncodeToString(point[1:33]),
		"y": base64.RawURLEncoding.EncodeToString(point[33:])}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *provider) token(t *testing.T, issuer string, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": issuer, "aud": auth.AzureAudience + "/", "oid": "me",
		"exp": time.Now().Add(time.Hour).Unix()}
	for name, v := range claims {
		all[name] = v
	}
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"`+*p.id.Load()+`"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(body)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	sig := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func (l *liveNode) bearer(token string) *dial.Target {
	return &dial.Target{Host: l.host, Plain: true, Signature: token}
}

// Tokens of a provider open the management API and AMQP for what their claims grant.
func TestJWTOfAProvider(t *testing.T) {
	p := newProvider(t)
	issuerName := p.URL + "/tenant"
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.Issuers = []issuer{{Name: issuerName, Grants: []grant{
			{Value: "owner", Rights: list{"Manage"}}, {Value: "sender", Rights: list{"Send"}},
			{Claim: "oid", Value: "me", Entity: "mine", Rights: list{"Listen"}},
		}}}
	}))
	<-p.asked
	owner := p.token(t, issuerName, map[string]any{"roles": []string{"owner"}})
	for _, name := range []string{"/mine", "/yours"} {
		res, text := l.request(t, "PUT", name, atomOf("QueueDescription", ""), "Bearer "+owner,
			"Content-Type", dial.AtomEntryType)
		if res.StatusCode != 201 {
			t.Fatalf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	if res, text := l.request(t, "GET", "/mine", "", owner); res.StatusCode != 200 { // Go sends it bare
		t.Errorf("%d %s", res.StatusCode, text)
	}
	sender := p.token(t, issuerName, map[string]any{"scp": "openid sender"})
	for entity, want := range map[string]string{"mine": "send,receive", "yours": "send"} {
		if got := tries(t, l.bearer(sender), entity); got != want {
			t.Errorf("%s: can %q, want %q", entity, got, want)
		}
	}
	for name, token := range map[string]string{
		"a sender":         sender,
		"another issuer":   p.token(t, p.URL, map[string]any{"roles": "owner"}),
		"another audience": p.token(t, issuerName, map[string]any{"roles": "owner", "aud": "x"}),
		"expired": p.token(t, issuerName, map[string]any{"roles": "owner",
			"exp": time.Now().Add(-time.Hour).Unix()}),
	} {
		if res, _ := l.request(t, "DELETE", "/yours", "", token); res.StatusCode != 401 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if log := l.log.String(); strings.Contains(log, owner) || strings.Contains(log, sender) {
		t.Error("the log tells a token")
	}
}

// Keys come from a file as well, which must be there and good when the node starts.
func TestJWTKeysOfAFile(t *testing.T) {
	p := newProvider(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	cfg := nodeConfig(t, func(c *Config) {
		c.Issuers = []issuer{{Name: "https://issuer.test", Keys: file}}
	})
	if n, err := openNode(t.Context(), cfg, hclog.NewNullLogger()); err == nil {
		_ = n.close(context.Background())
		t.Fatal("a node starts without the file of its keys")
	}
	if err := os.WriteFile(file, p.keys(t), 0o600); err != nil {
		t.Fatal(err)
	}
	l := openLive(t, cfg)
	token := p.token(t, "https://issuer.test", map[string]any{"roles": "Azure Service Bus Data Owner"})
	if res, text := l.request(t, "GET", "/$Resources/Queues", "", token); res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

func TestWhereKeysMayComeFrom(t *testing.T) {
	for name, tc := range map[string]struct {
		i    issuer
		good bool
	}{
		"https":              {issuer{Name: "https://i.test"}, true},
		"loopback":           {issuer{Name: "http://127.0.0.1:1/x"}, true},
		"keys of their own":  {issuer{Name: "urn:x", Keys: "https://i.test/keys"}, true},
		"a file":             {issuer{Name: "urn:x", Keys: "/etc/keys.json"}, true},
		"plain http":         {issuer{Name: "http://i.test"}, false},
		"plain http keys":    {issuer{Name: "https://i.test", Keys: "http://i.test/keys"}, false},
		"nowhere":            {issuer{Name: "urn:x"}, false},
		"a file scheme":      {issuer{Name: "urn:x", Keys: "file:///etc/keys.json"}, false},
		"an unknown right":   {issuer{Name: "https://i.test", Grants: []grant{{Value: "x", Rights: list{"Own"}}}}, false},
		"no right":           {issuer{Name: "https://i.test", Grants: []grant{{Value: "x"}}}, false},
		"nobody":             {issuer{}, false},
		"a redirect to http": {issuer{Name: "https://i.test", Keys: "http://[::1]/keys"}, true},
	} {
		if _, err := tc.i.resolve(); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token of a new key makes the node fetch the keys again, but not at once for everybody who asks.
func TestNewKeysAreFetchedWhenATokenNamesThem(t *testing.T) {
	p := newProvider(t)
	policies, err := auth.New(0)
	if err != nil {
		t.Fatal(err)
	}
	i := issuer{Name: p.URL + "/tenant"}
	resolved, err := i.resolve()
	if err != nil {
		t.Fatal(err)
	}
	if err := policies.AddIssuer(resolved); err != nil {
		t.Fatal(err)
	}
	k := &keyring{issuers: []issuer{i}, policies: policies, client: newKeyClient(), log: hclog.NewNullLogger()}
	if err := k.fetch(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	p.rename("two")
	token := p.token(t, i.Name, map[string]any{"roles": "Azure Service Bus Data Owner"})
	if _, err := policies.Verify(token, time.Now()); err == nil {
		t.Fatal("an unknown key counts")
	}
	if !sleep(t.Context(), time.Hour, policies.KeysWanted(i.Name)) {
		t.Fatal("nobody asks")
	}
	if err := k.fetch(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.Verify(token, time.Now()); err != nil {
		t.Error(err)
	}
}

// An issuer that accepts the request for its keys and never answers keeps no other issuer from being asked.
func TestAnIssuerThatHangsDelaysNoOther(t *testing.T) {
	asked := make(chan struct{}, 1)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer hangs.Close()
	p := newProvider(t)
	policies, err := auth.New(0)
	if err != nil {
		t.Fatal(err)
	}
	all := []issuer{{Name: hangs.URL}, {Name: p.URL + "/tenant"}}
	for _, i := range all {
		resolved, err := i.resolve()
		if err == nil {
			err = policies.AddIssuer(resolved)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	k := &keyring{issuers: all, policies: policies, client: &http.Client{}, log: hclog.NewNullLogger()} // without a time limit
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.run(ctx) }()
	defer func() { cancel(); <-done }()
	<-asked
	select {
	case <-p.asked:
	case <-time.After(time.Minute):
		t.Fatal("the second issuer is not asked while the first one hangs")
	}
}
