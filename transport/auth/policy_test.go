package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestPoliciesAreChecked(t *testing.T) {
	ok := Policy{Name: "n", Primary: "k", Rights: Send}
	many := make([]Policy, MaxPoliciesPerScope+1)
	for i := range many {
		many[i] = Policy{Name: fmt.Sprint("n", i), Primary: "k", Rights: Send}
	}
	long := Secret(strings.Repeat("k", MaxKeyBytes+1))
	for name, policies := range map[string][]Policy{
		"no name":                    {{Primary: "k", Rights: Send}},
		"a name that is too long":    {{Name: strings.Repeat("n", 257), Primary: "k", Rights: Send}},
		"a name with a slash":        {{Name: "a/b", Primary: "k", Rights: Send}},
		"a name with a letter of é":  {{Name: "é", Primary: "k", Rights: Send}},
		"no key":                     {{Name: "n", Rights: Send}},
		"a key that is too long":     {{Name: "n", Primary: long, Rights: Send}},
		"a second key as long":       {{Name: "n", Primary: "k", Secondary: long, Rights: Send}},
		"no rights":                  {{Name: "n", Primary: "k"}},
		"unknown rights":             {{Name: "n", Primary: "k", Rights: 8}},
		"Manage alone":               {{Name: "n", Primary: "k", Rights: Manage}},
		"a name twice":               {ok, ok},
		"more than a scope may have": many,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicies(t)
			if p.Replace("", policies...) == nil {
				t.Error("Replace accepted it")
			}
			if p.ReplaceAll(map[string][]Policy{"": policies}) == nil {
				t.Error("ReplaceAll accepted it")
			}
			if _, err := p.VerifyPlain(root, rootKey); err != nil {
				t.Errorf("the old policies are gone: %v", err)
			}
		})
	}
	if _, err := New(-1); err == nil {
		t.Error("New accepted a negative tolerance")
	}
}

func TestReplaceTakesKeysAway(t *testing.T) {
	p := newPolicies(t)
	if err := p.Replace("ORDERS"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.VerifyPlain("app", "app-key"); !errors.Is(err, ErrUnknownPolicy) {
		t.Errorf("got %v", err)
	}
	one := map[string][]Policy{"q": {{Name: "n", Primary: "k", Rights: All}}}
	if err := p.ReplaceAll(one); err != nil {
		t.Fatal(err)
	}
	if _, err := p.VerifyPlain(root, rootKey); !errors.Is(err, ErrUnknownPolicy) {
		t.Errorf("got %v", err)
	}
	if _, err := p.VerifyPlain("n", "k"); err != nil {
		t.Error(err)
	}
}

func TestPoliciesAreSafeForConcurrentUse(t *testing.T) {
	p := newPolicies(t)
	token := NewToken("sb://h/orders", root, rootKey, now.Add(time.Hour))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if _, err := p.Verify(token, now); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 200 {
		if err := p.Replace("orders", Policy{
			Name: "app", Primary: Secret(fmt.Sprint(i)), Rights: Send,
		}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func TestSecretsDoNotPrint(t *testing.T) {
	policy := Policy{Name: "n", Primary: "topsecret", Secondary: "topsecret", Rights: Send}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", policy)
		fmt.Fprintf(&out, verb+"\n", policy.Primary)
	}
	encoded, err := json.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	for _, leak := range []string{"topsecret", fmt.Sprintf("%x", "topsecret")} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q is in %s", leak, &out)
		}
	}
	if policy.Primary.String() != redacted || policy.Primary.GoString() != redacted {
		t.Error("String and GoString tell the key")
	}
}
