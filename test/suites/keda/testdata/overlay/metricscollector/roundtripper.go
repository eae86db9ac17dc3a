// Package metricscollector measures nothing; KEDA's own counts requests.
package metricscollector

import "net/http"

// CloseableRoundTripper is a transport that can close what idles.
type CloseableRoundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

// NewInstrumentedRoundTripper returns the transport as it is.
func NewInstrumentedRoundTripper(t *http.Transport) http.RoundTripper { return t }

// NewInstrumentedRoundTripperWithCloseIdleConnections returns the transport as it is.
func NewInstrumentedRoundTripperWithCloseIdleConnections(t *http.Transport) CloseableRoundTripper {
	return t
}
