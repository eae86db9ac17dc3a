package dial

import (
	"strings"
	"testing"
)

func TestConnectionString(t *testing.T) {
	const key = ";SharedAccessKeyName=n;SharedAccessKey=k=="
	cases := []struct {
		name, text string
		want       Target
		fault      string
	}{
		{"the emulator's string is plain on 5672", "Endpoint=sb://localhost" + key + ";UseDevelopmentEmulator=true;",
			Target{Host: "localhost:5672", Plain: true, KeyName: "n", Key: "k=="}, ""},
		{"an ordinary string is TLS on 5671", "Endpoint=sb://ns.example.net/" + key,
			Target{Host: "ns.example.net:5671", KeyName: "n", Key: "k=="}, ""},
		{"a port stays", "Endpoint=sb://localhost:5682" + key + ";usedevelopmentemulator=TRUE",
			Target{Host: "localhost:5682", Plain: true, KeyName: "n", Key: "k=="}, ""},
		{"an address of IPv6", "Endpoint=sb://[::1]" + key,
			Target{Host: "[::1]:5671", KeyName: "n", Key: "k=="}, ""},
		{"an entity", "Endpoint=sb://h/" + key + ";EntityPath=a/b",
			Target{Host: "h:5671", KeyName: "n", Key: "k==", entity: "a/b"}, ""},
		{"a signature instead of a key", "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=x&sig=y",
			Target{Host: "h:5671", Signature: "SharedAccessSignature sr=x&sig=y"}, ""},
		{"no endpoint", strings.TrimPrefix(key, ";"), Target{}, "Endpoint"},
		{"no key", "Endpoint=sb://h/;SharedAccessKeyName=n", Target{}, "SharedAccessKey"},
		{"a part without =", "Endpoint=sb://h/;rubbish" + key, Target{}, "no ="},
		{"a flag that is no flag", "Endpoint=sb://h/" + key + ";UseDevelopmentEmulator=perhaps", Target{}, "UseDevelopmentEmulator"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseConnectionString(c.text)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "k==") {
					t.Fatalf("got %v, want an error about %s without the key", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *got != c.want {
				t.Errorf("got %+v, want %+v", *got, c.want)
			}
		})
	}
}
