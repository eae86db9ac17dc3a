package transport

import (
	"crypto/tls"
	"strings"
	"sync/atomic"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// protocol is how an AMQP connection came.
type protocol uint8

// The protocols.
const (
	protocolAMQP protocol = iota
	protocolAMQPS
	protocolWebSocket
	protocolSecureWebSocket
	protocols
)

var protocolNames = [protocols]string{"amqp", "amqps", "ws", "wss"}

// String returns the name that operators and metrics use.
func (p protocol) String() string { return protocolNames[p] }

// under returns p with TLS, if there is any.
func (p protocol) under(state *tls.ConnectionState) protocol {
	if state != nil {
		return p + 1
	}
	return p
}

// sdk is the library that a client introduced itself with. The set is closed, because a client may call itself anything
// and a metric must not have a series for each name.
type sdk uint8

// The libraries.
const (
	sdkOther sdk = iota
	sdkGo
	sdkDotNet
	sdkJava
	sdkJavaScript
	sdkPython
	sdkQpid
	sdkBusbar // the broker's own commands
	sdks
)

var sdkNames = [sdks]string{"other", "go", "dotnet", "java", "javascript", "python", "qpid", "busbar"}

// sdkOf tells the library by the properties of an open. All libraries send product; .NET and Java are also told by their
// user-agent, which applications may put a name of their own before.
func sdkOf(open *amqp.Open) sdk {
	text := func(key string) string {
		v, _ := open.Properties.Get(key)
		s, _ := v.Text()
		return strings.ToLower(s)
	}
	product, agent := text("product"), text("user-agent")
	for _, k := range []struct {
		sdk            sdk
		product, agent string
	}{
		{sdkGo, goProduct, "azsdk-go-"}, {sdkJavaScript, jsProduct, "azsdk-js-"},
		{sdkPython, pythonProduct, "azsdk-python-"}, {sdkDotNet, "azure.messaging.servicebus", "azsdk-net-"},
		{sdkJava, "azure-messaging-servicebus", "azsdk-java-"}, {sdkQpid, "qpid", "qpid"}, {sdkBusbar, "busbar-", "busbar-"},
	} {
		if strings.HasPrefix(product, strings.ToLower(k.product)) || strings.Contains(agent, k.agent) {
			return k.sdk
		}
	}
	return sdkOther
}

// clientKinds counts open connections by protocol and library.
type clientKinds [protocols][sdks]atomic.Int64

// Clients calls f with the number of open AMQP connections of each protocol and library that has any, or has had.
func (s *Stats) Clients(f func(protocol, sdk string, open int64)) {
	for p := range s.clients {
		for k := range s.clients[p] {
			if s.seen[p][k].Load() {
				f(protocolNames[p], sdkNames[k], s.clients[p][k].Load())
			}
		}
	}
}
