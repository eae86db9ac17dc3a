package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// Retry is how patient the SDK is in tests: as by default, only quicker.
var Retry = azservicebus.RetryOptions{
	MaxRetries: 3, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: time.Second,
}

// TLSConfig trusts the development authority of the node.
func (n *Node) TLSConfig() (*tls.Config, error) {
	pem, err := os.ReadFile(n.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", n.CA)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// ConnectionString returns the connection string of the plain or the TLS port.
func (n *Node) ConnectionString(secure bool) string {
	if secure {
		return n.Secure()
	}
	return n.Plain()
}

// Client returns a data client of the SDK.
func (n *Node) Client(secure bool, retry azservicebus.RetryOptions) (*azservicebus.Client, error) {
	return n.ClientFor(n.ConnectionString(secure), secure, retry)
}

// ClientFor is Client with another connection string.
func (n *Node) ClientFor(cs string, secure bool, retry azservicebus.RetryOptions) (*azservicebus.Client, error) {
	opt := &azservicebus.ClientOptions{RetryOptions: retry}
	if secure {
		cfg, err := n.TLSConfig()
		if err != nil {
			return nil, err
		}
		opt.TLSConfig = cfg
	}
	return azservicebus.NewClientFromConnectionString(cs, opt)
}

// Admin returns a management client of the SDK. The SDK always asks https; in plain text the
// transport goes to the same port without it, as users of an emulator do.
func (n *Node) Admin(secure bool) (*admin.Client, error) {
	return n.AdminFor(n.ConnectionString(secure), secure)
}

// AdminFor is Admin with another connection string.
func (n *Node) AdminFor(cs string, secure bool) (*admin.Client, error) {
	opt := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry: policy.RetryOptions{MaxRetries: 1, RetryDelay: 100 * time.Millisecond},
	}}
	if secure {
		cfg, err := n.TLSConfig()
		if err != nil {
			return nil, err
		}
		opt.Transport = &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	} else {
		opt.Transport = plainHTTP{&http.Transport{}}
	}
	return admin.NewClientFromConnectionString(cs, opt)
}

// plainHTTP sends what the SDK meant for https in plain text to the same host and port.
type plainHTTP struct{ base *http.Transport }

func (p plainHTTP) Do(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme = "http"
	return p.base.RoundTrip(req)
}
