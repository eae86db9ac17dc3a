package transport

import "sync/atomic"

// Stats are the counters of the front end, since the start of the process. Every place that turns
// something away has a counter of its own in Rejected.
type Stats struct {
	Accepted      atomic.Uint64 // sockets accepted
	Connections   atomic.Int64  // AMQP connections open now
	Links         atomic.Int64  // links open now
	MessagesIn    atomic.Uint64 // messages stored for clients
	MessagesOut   atomic.Uint64 // messages written to clients
	BytesIn       atomic.Uint64 // frame bytes read
	BytesOut      atomic.Uint64 // bytes written
	Settled       atomic.Uint64 // settlements applied
	SettleRefused atomic.Uint64 // settlements refused, as by a lost lock
	Requests      atomic.Uint64 // requests to $cbs and $management
	WebSockets    atomic.Uint64 // connections that came as WebSocket
	Lost          atomic.Uint64 // connections that ended without a close
	Rejected      [sites]atomic.Uint64
	clients       clientKinds
	seen          [protocols][sdks]atomic.Bool // kinds of clients that have been here
}

// site names one place in the code that turns something away.
type site uint8

// The rejection sites.
const (
	siteConnections    site = iota // too many connections
	siteHandshakes                 // too many unauthenticated connections
	siteTLSOnPlain                 // a TLS hello on a plain port
	sitePlainOnTLS                 // plain bytes on a TLS port
	siteTLSHandshake               // TLS handshake failed
	siteSniff                      // nothing recognisable arrived in time
	siteProtocolHeader             // unsupported protocol header
	siteSASL                       // SASL refused
	siteHandshakeFrame             // malformed or unexpected frame before open
	siteFraming                    // malformed frame
	siteDecode                     // undecodable performative
	siteIllegalFrame               // performative not allowed now
	siteChannel                    // unknown, used or too high channel
	siteHandle                     // unknown, used or too high handle
	siteLinks                      // too many links
	siteAttach                     // attach refused
	siteUnauthorized               // no right, or the right has lapsed
	siteToken                      // put-token refused
	siteCredit                     // transfer without credit
	siteMessageSize                // message larger than announced
	siteMessage                    // malformed message or batch
	siteSettledLost                // a settled transfer could not be stored
	siteRefused                    // the state machine refused
	siteUnavailable                // no partition answered in time
	siteRequest                    // malformed or unsupported request
	siteReply                      // a reply found no link
	siteDisposition                // malformed disposition
	siteTransaction                // refused work of a transaction, or a malformed request for one
	siteIdle                       // peer silent for too long
	siteWrite                      // peer did not read for too long
	siteHTTP                       // too many HTTP requests at a time
	siteKeyRate                    // a key sent more than its rate
	siteStranger                   // too much before the first valid token
	sitePanic                      // a broken invariant ended a connection
	sites
)

// siteNames are the label values of the metric.
var siteNames = [sites]string{
	"connections", "handshakes", "tls-on-plain", "plain-on-tls", "tls-handshake", "sniff",
	"protocol-header", "sasl", "handshake-frame", "framing", "decode", "illegal-frame", "channel",
	"handle", "links", "attach", "unauthorized", "token", "credit", "message-size", "message",
	"settled-lost", "refused", "unavailable", "request", "reply", "disposition", "transaction", "idle", "write",
	"http", "key-rate", "stranger", "panic",
}

// Rejections calls f with the name and count of every rejection site.
func (s *Stats) Rejections(f func(name string, count uint64)) {
	for i := range s.Rejected {
		f(siteNames[i], s.Rejected[i].Load())
	}
}

// reject counts one rejection.
func (s *Stats) reject(at site) { s.Rejected[at].Add(1) }
