package dial

import (
	"net"
	"strings"
	"testing"
	"time"
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

// Without a connection string the development broker of this machine is meant, and an error says so.
func TestNoConnectionStringMeansTheDevelopmentBroker(t *testing.T) {
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "")
	target, err := (&Flags{Output: "table"}).Target()
	if err != nil {
		t.Fatal(err)
	}
	if target.Host != "localhost:5672" || !target.Plain || target.KeyName != "RootManageSharedAccessKey" || target.Key != "SAS_KEY_VALUE" {
		t.Errorf("got %+v", target)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target.Host = listener.Addr().String()
	listener.Close() // so nobody is there
	const hint = "neither --connection-string nor SERVICEBUS_CONNECTION_STRING names a broker"
	if _, err := NewManagement(target, time.Minute).Get(t.Context(), "q"); err == nil || !strings.Contains(err.Error(), hint) {
		t.Errorf("over HTTP: %v", err)
	}
	if _, err := Connect(t.Context(), target, "q", time.Minute); err == nil || !strings.Contains(err.Error(), hint) {
		t.Errorf("over AMQP: %v", err)
	}
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "Endpoint=sb://"+target.Host+";SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true")
	if target, err = (&Flags{Output: "table"}).Target(); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(t.Context(), target, "q", time.Minute); err == nil || strings.Contains(err.Error(), hint) {
		t.Errorf("with a connection string: %v", err)
	}
}

// What the service says is shortened for a terminal; the tracking id stays.
func TestTextsOfTheServiceAreShortened(t *testing.T) {
	for text, want := range map[string]string{
		"SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state. To know more visit " +
			"https://aka.ms/sbResourceMgrExceptions. TrackingId:abc_G1, SystemTracker:x, Timestamp:2026-01-01T00:00:00": "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state|abc_G1",
		"plain": "plain|", "": "|",
	} {
		if short, id := shortened(text); short+"|"+id != want {
			t.Errorf("%s: %q, want %q", text, short+"|"+id, want)
		}
	}
}
