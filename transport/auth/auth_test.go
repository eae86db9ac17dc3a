package auth

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	root    = "RootManageSharedAccessKey"
	rootKey = "SAS_KEY_VALUE"
)

var now = time.Unix(1800000000, 0)

func newPolicies(t testing.TB) *Policies {
	t.Helper()
	p, err := New(DefaultExpiryTolerance)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Replace("", Policy{Name: root, Primary: rootKey, Secondary: "second", Rights: All},
		Policy{Name: "reader", Primary: "reader-key", Rights: Listen}); err != nil {
		t.Fatal(err)
	}
	if err := p.Replace("Orders", Policy{Name: "app", Primary: "app-key", Rights: Send},
		Policy{Name: "reader", Primary: "orders-reader", Rights: Send}); err != nil {
		t.Fatal(err)
	}
	return p
}

// The signatures of 3.2 were made by real clients' rules; the order of parameters is each client's.
func TestVerifyAcceptsWhatTheClientsSign(t *testing.T) {
	p := newPolicies(t)
	const (
		goAdmin  = "sr=https%3a%2f%2flocalhost%3a5300%2fq1%3fapi-version%3d2024-05"
		goSig    = "sig=IB8b63Q3FCxH7AeicZMg3ELctc45nf3Ffh742unzFHo%3D"
		rootURL  = "sr=https%3A%2F%2Flocalhost%2F"
		rootSig  = "sig=7v16lK1VGvSbwYom8XdUtn3pZ3wJYn9TN8PFPB2Ubg4%3D"
		amqp     = "sr=sb%3A%2F%2Flocalhost%2Fq1"
		amqpSig  = "sig=UffTJriubpdGRufC2afYkrHmD4K0dlmEgTjn27FtI%2FI%3D"
		amqpBare = "sig=UffTJriubpdGRufC2afYkrHmD4K0dlmEgTjn27FtI/I="
		se       = "se=1893456000"
		skn      = "skn=" + root
	)
	for name, tc := range map[string]struct {
		parts  []string
		prefix string
		path   string
	}{
		"Go admin signs the whole URL in lower case": {[]string{goAdmin, goSig, se, skn}, "", "q1"},
		"JS puts the audience last":                  {[]string{goSig, se, skn, goAdmin}, "", "q1"},
		".NET signs the namespace":                   {[]string{rootURL, rootSig, se, skn}, "", ""},
		"AMQP audiences are sb URLs":                 {[]string{amqp, amqpSig, se, skn}, "", "q1"},
		"a signature may be left unencoded":          {[]string{skn, amqp, amqpBare, se}, "", "q1"},
		"the prefix has any case": {
			[]string{amqp, amqpSig, se, skn}, "sharedaccessSIGNATURE ", "q1",
		},
		"Bearer before a signature is stripped": {
			[]string{amqp, amqpSig, se, skn}, "bearer SharedAccessSignature ", "q1",
		},
		"an unknown parameter is ignored": {
			[]string{"x=1", amqp, amqpSig, se, skn}, "", "q1",
		},
		"parameter names have any case": {
			[]string{"SR=" + amqp[3:], amqpSig, se, skn}, "", "q1",
		},
		"blanks around the token are those of headers": {
			[]string{amqp, amqpSig, se, skn + "  "}, "", "q1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := tc.prefix
			if prefix == "" {
				prefix = sasPrefix
			}
			got, err := p.Verify(prefix+strings.Join(tc.parts, "&"), now)
			if err != nil {
				t.Fatal(err)
			}
			want := Claim{
				Policy: root, Audience: tc.path, Rights: All, Expires: time.Unix(1893456000, 0),
				Until: time.Unix(1893456000, 0).Add(DefaultExpiryTolerance), key: p.markOf(rootKey),
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// The Go SDK's own vector: the audience is no URL and the key is short.
func TestNewTokenMakesTheKnownSignature(t *testing.T) {
	for _, tc := range []struct {
		audience, policy, key string
		expiry                int64
		want                  string
	}{
		{
			"audience", "n", "key", 1578099723,
			"SharedAccessSignature sr=audience&sig=8UM0iIfFCfeBSqxSdBMW8pUbhAm7mnjSUaIZTZx8V0g%3D" +
				"&se=1578099723&skn=n",
		},
		{
			"https://localhost/", root, rootKey, 1893456000,
			"SharedAccessSignature sr=https%3A%2F%2Flocalhost%2F" +
				"&sig=7v16lK1VGvSbwYom8XdUtn3pZ3wJYn9TN8PFPB2Ubg4%3D&se=1893456000&skn=" + root,
		},
	} {
		got := NewToken(tc.audience, tc.policy, tc.key, time.Unix(tc.expiry, 0))
		if got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	p := newPolicies(t)
	soon := now.Add(time.Hour)
	good := NewToken("sb://h/q", root, rootKey, soon)
	with := func(old, new string) string {
		changed := strings.Replace(good, old, new, 1)
		if changed == good {
			t.Fatalf("%q is not in the token", old)
		}
		return changed
	}
	se := fmt.Sprint(soon.Unix())
	for name, tc := range map[string]struct {
		token string
		want  *Error
	}{
		"no token":                         {"", ErrMissing},
		"blanks only":                      {" \t ", ErrMissing},
		"a word":                           {"hello", ErrMalformed},
		"basic authentication":             {"Basic dXNlcjpwYXNz", ErrMalformed},
		"the prefix alone":                 {sasPrefix, ErrMalformed},
		"the parameters without a prefix":  {good[len(sasPrefix):], ErrMalformed},
		"no audience":                      {with("sr=", "xr="), ErrMalformed},
		"an empty audience":                {with("sr=sb%3A%2F%2Fh%2Fq", "sr="), ErrMalformed},
		"no signature":                     {with("&sig=", "&xig="), ErrMalformed},
		"no expiry":                        {with("&se=", "&xe="), ErrMalformed},
		"no policy":                        {with("&skn=", "&xkn="), ErrMalformed},
		"a doubled audience":               {good + "&sr=sb%3A%2F%2Fh", ErrMalformed},
		"a doubled signature":              {good + "&SIG=AAAA", ErrMalformed},
		"an expiry that is a word":         {with(se, "soon"), ErrMalformed},
		"a negative expiry":                {with(se, "-1"), ErrMalformed},
		"an expiry beyond 64 bits":         {with(se, "99999999999999999999999"), ErrMalformed},
		"a signature that is not base64":   {with("sig=", "sig=!"), ErrMalformed},
		"a broken escape in the signature": {with("sig=", "sig=%G1"), ErrMalformed},
		"a broken escape in the audience":  {with("sr=", "sr=%"), ErrMalformed},
		"a broken escape in the policy":    {with("skn=", "skn=%zz"), ErrMalformed},
		"a broken escape inside the path":  {NewToken("sb://h/%zz", root, rootKey, soon), ErrMalformed},
		"a path longer than any entity": {
			NewToken("sb://h/"+strings.Repeat("a/", 600), root, rootKey, soon), ErrMalformed,
		},
		"a token without end": {
			good + "&x=" + strings.Repeat("a", MaxTokenBytes), ErrMalformed,
		},
		"another audience under the same": {with("%2Fq", "%2Fr"), ErrBadSignature},
		"the same audience, encoded anew": {with("%2F", "%2f"), ErrBadSignature},
		"a later expiry under the same":   {with(se, fmt.Sprint(soon.Unix()+1)), ErrBadSignature},
		"an empty key":                    {NewToken("sb://h/q", "reader", "", soon), ErrBadSignature},
		"the wrong key":                   {NewToken("sb://h/q", root, "other", soon), ErrBadSignature},
		"a truncated signature": {
			NewToken("sb://h/q", root, rootKey, soon)[:40] + "&sig=AAAA&se=" + se + "&skn=" + root,
			ErrBadSignature,
		},
		"a policy nobody knows": {
			NewToken("sb://h/q", "nobody", rootKey, soon), ErrUnknownPolicy,
		},
		"a policy in other letters": {
			NewToken("sb://h/q", strings.ToLower(root), rootKey, soon), ErrUnknownPolicy,
		},
		"an entity's policy elsewhere": {
			NewToken("sb://h/other", "app", "app-key", soon), ErrUnknownPolicy,
		},
		"an entity's policy on the root": {
			NewToken("sb://h/", "app", "app-key", soon), ErrUnknownPolicy,
		},
		"an entity's policy on a namesake": {
			NewToken("sb://h/orders/eu", "app", "app-key", soon), ErrUnknownPolicy,
		},
		"expired beyond the tolerance": {
			NewToken("sb://h/q", root, rootKey, now.Add(-DefaultExpiryTolerance)), ErrExpired,
		},
		"expired long ago with a wrong key": {
			NewToken("sb://h/q", root, "other", time.Unix(1, 0)), ErrBadSignature,
		},
		"a JSON web token": {
			"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln", ErrNotSupported,
		},
		"a bare JSON web token": {
			"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln", ErrNotSupported,
		},
		"an unsigned JSON web token": {"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", ErrNotSupported},
		"three dots":                 {"...", ErrMalformed},
		"NUL bytes":                  {sasPrefix + "\x00&\x00=\x00", ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			claim, err := p.Verify(tc.token, now)
			if !errors.Is(err, tc.want) || claim != (Claim{}) {
				t.Errorf("got %+v, %v, want %v", claim, err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), rootKey) {
				t.Errorf("the error tells the key: %v", err)
			}
		})
	}
}

func TestVerifyHonoursExpiryWithTolerance(t *testing.T) {
	p := newPolicies(t)
	for name, tc := range map[string]struct {
		expires time.Time
		ok      bool
	}{
		"in the future":                   {now.Add(time.Second), true},
		"just past":                       {now.Add(-time.Second), true},
		"the last moment of tolerance":    {now.Add(time.Second - DefaultExpiryTolerance), true},
		"the end of tolerance":            {now.Add(-DefaultExpiryTolerance), false},
		"beyond every calendar (clamped)": {time.Unix(1<<62, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			claim, err := p.Verify(NewToken("sb://h/q", root, rootKey, tc.expires), now)
			if (err == nil) != tc.ok {
				t.Fatalf("got %v", err)
			}
			if tc.ok && (claim.ExpiredAt(now) || !claim.ExpiredAt(claim.Until)) {
				t.Errorf("claim %+v expires at the wrong time", claim)
			}
		})
	}
	plain, err := p.VerifyPlain(root, rootKey)
	if err != nil || plain.ExpiredAt(now.Add(1e6*time.Hour)) {
		t.Errorf("a claim by key must not expire: %+v, %v", plain, err)
	}
}

func TestBothKeysCountAndScopesDoNotHideEachOther(t *testing.T) {
	p := newPolicies(t)
	for name, tc := range map[string]struct {
		audience, policy, key string
		scope                 string
		rights                Right
	}{
		"the secondary key":  {"sb://h/q", root, "second", "", All},
		"an entity's policy": {"sb://h/ORDERS", "app", "app-key", "orders", Send},
		"an entity's policy below it": {
			"sb://h/orders/$management", "app", "app-key", "orders", Send,
		},
		"an entity's policy, subscription": {
			"sb://h/orders/Subscriptions/s", "app", "app-key", "orders", Send,
		},
		"the entity's of two namesakes": {
			"sb://h/orders", "reader", "orders-reader", "orders", Send,
		},
		"the namespace's of two namesakes":   {"sb://h/orders", "reader", "reader-key", "", Listen},
		"the namespace's policy on the root": {"h", root, rootKey, "", All},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.Verify(NewToken(tc.audience, tc.policy, tc.key, now.Add(time.Hour)), now)
			if err != nil {
				t.Fatal(err)
			}
			if got.Scope != tc.scope || got.Rights != tc.rights {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestVerifyPlain(t *testing.T) {
	p := newPolicies(t)
	for name, tc := range map[string]struct {
		policy, key string
		want        error
		scope       string
	}{
		"the primary key":          {root, rootKey, nil, ""},
		"the secondary key":        {root, "second", nil, ""},
		"an entity's policy":       {"app", "app-key", nil, "orders"},
		"the second of namesakes":  {"reader", "orders-reader", nil, "orders"},
		"nothing":                  {"", "", ErrMissing, ""},
		"no key":                   {"reader", "", ErrMalformed, ""},
		"the wrong key":            {root, "x", ErrBadSignature, ""},
		"a policy nobody knows":    {"x", rootKey, ErrUnknownPolicy, ""},
		"a key longer than any is": {root, strings.Repeat("k", MaxKeyBytes+1), ErrMalformed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.VerifyPlain(tc.policy, tc.key)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if got.Scope != tc.scope || got.Audience != tc.scope {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWords(t *testing.T) {
	for right, want := range map[Right]string{
		0: "none", Send: "Send", All: "Manage,Send,Listen", Send | Listen: "Send,Listen",
	} {
		if got := right.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for kind, want := range map[Kind]string{
		Missing:       "MissingToken: The authorization header was not found.",
		Malformed:     "MalformedToken: ",
		BadSignature:  "InvalidSignature: The token has an invalid signature.",
		UnknownPolicy: "InvalidSignature: The token has an invalid signature.",
		Expired:       "ExpiredToken: ",
		NotSupported:  "MalformedToken: JSON web tokens are not supported",
		Empty:         "claim is empty.",
		Kind(99):      "Kind(99)",
	} {
		if got := TextOf(fmt.Errorf("put token: %w", &Error{Kind: kind})); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(NewToken("sb://h/q", root, rootKey, now.Add(time.Hour)))
	f.Add(sasPrefix + "sr=%&sig=%&se=1&skn=%")
	f.Add("Bearer a.b.c")
	p := newPolicies(f)
	f.Fuzz(func(t *testing.T, token string) {
		claim, err := p.Verify(token, now)
		if err != nil {
			var typed *Error
			if !errors.As(err, &typed) || claim != (Claim{}) {
				t.Fatalf("got %+v, %v", claim, err)
			}
			return
		}
		// Only who knows a key gets here: the seed's token, or one with the same signed text.
		if !claim.Allows(claim.Audience, Listen) && claim.Audience != "" {
			t.Fatalf("a claim does not open its own audience: %+v", claim)
		}
		if !strings.Contains(token, url.QueryEscape("sb://h/q")) {
			t.Fatalf("accepted %q", token)
		}
	})
}

// B3, RUL-13: an expired token is refused in the original's words, with the time.
func TestAnExpiredTokenIsToldWhen(t *testing.T) {
	p := newPolicies(t)
	at := time.Date(2021, 3, 4, 5, 6, 7, 0, time.UTC)
	_, err := p.Verify(NewToken("sb://h/q", root, rootKey, at), now)
	if got, want := TextOf(err), "ExpiredToken: The token is expired. Expiration time: '2021-03-04 05:06:07Z'."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !errors.Is(err, ErrExpired) {
		t.Errorf("got %v", err)
	}
}
