package transport

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// preOpenFrameBytes bounds frames before open. AMQP 1.0 §2.4.1 says 512; some clients describe
	// themselves at more length than that.
	preOpenFrameBytes = 4 << 10

	// heartbeatMax is the longest silence towards a peer: Go and Java clients give up after 60 s
	// whatever they announced (G20).
	heartbeatMax = 25 * time.Second
	heartbeatMin = 250 * time.Millisecond
	// minPeerIdle is the least idle-time-out of a client, in milliseconds: twice heartbeatMin (AMQP 1.0 §2.4.5).
	minPeerIdle = 500

	saslWelcome = "Welcome!"

	// goProduct is how the Go SDK introduces itself.
	goProduct = "MSGolangClient"
	// javaProduct is how the Java SDK introduces itself.
	javaProduct = "azure-messaging-servicebus"
	// jsProduct is how the JavaScript SDK introduces itself.
	jsProduct = "MSJSClient"
	// pythonProduct is how the Python SDK introduces itself.
	pythonProduct = "azsdk-python-servicebus"
)

// mechanisms are the SASL mechanisms in the order in which the original offers them. It offers EXTERNAL as well; no
// listener of ours asks a client for a certificate.
func mechanisms() []amqp.Symbol { return []amqp.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS"} }

// handshake speaks protocol headers, SASL and open. It runs before the reader and the writer exist
// and under one deadline; afterwards the peer has the right to open channels.
func (c *conn) handshake(r *amqp.Reader) bool {
	deadline := time.Now().Add(c.cfg.HandshakeTimeout)
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-c.stop:
			c.socket.Close()
		case <-ended:
		}
	})
	defer wg.Wait()
	defer close(ended)
	if err := c.socket.SetDeadline(deadline); err != nil {
		return false
	}
	at, err := c.negotiate(r)
	if err != nil {
		c.s.stats.reject(at)
		c.log.Debug("handshake", "site", siteNames[at], "error", err)
		return false
	}
	return c.socket.SetDeadline(time.Time{}) == nil
}

// send writes out what has been appended so far, during the handshake.
func (c *conn) send() error {
	_, err := c.socket.Write(c.out)
	c.s.stats.BytesOut.Add(uint64(len(c.out)))
	c.bytesOut += uint64(len(c.out))
	c.out = c.out[:0]
	c.lastWrite = time.Now()
	return err
}

func (c *conn) negotiate(r *amqp.Reader) (site, error) {
	h, err := r.ReadProtocolHeader()
	if err != nil || !h.Supported() {
		return c.wrongHeader(amqp.ProtocolSASL, errOr(err, amqp.ErrFraming))
	}
	// A client with a ready-made signature has no SASL layer (Q6).
	if h.ID == amqp.ProtocolSASL {
		if at, err := c.sasl(r); err != nil {
			return at, err
		}
		h, err = r.ReadProtocolHeader()
		if err != nil || !h.Supported() || h.ID != amqp.ProtocolAMQP {
			return c.wrongHeader(amqp.ProtocolAMQP, fmt.Errorf("after SASL: %w", errOr(err, amqp.ErrFraming)))
		}
	}
	c.out = amqp.AppendProtocolHeader(c.out, amqp.ProtocolAMQP)
	if err := c.send(); err != nil {
		return siteHandshakeFrame, err
	}
	return c.open(r)
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// wrongHeader answers with the header that would have been right; the socket is closed then
// (AMQP 1.0 §2.2).
func (c *conn) wrongHeader(want amqp.ProtocolID, cause error) (site, error) {
	c.out = amqp.AppendProtocolHeader(c.out, want)
	if err := c.send(); err != nil {
		c.log.Trace("write protocol header", "error", err)
	}
	return siteProtocolHeader, cause
}

// sasl authenticates with PLAIN or lets the client in to put tokens.
func (c *conn) sasl(r *amqp.Reader) (site, error) {
	c.out = amqp.AppendProtocolHeader(c.out, amqp.ProtocolSASL)
	c.out = amqp.AppendFrame(c.out, 0, &amqp.SASLMechanisms{Mechanisms: mechanisms()})
	if err := c.send(); err != nil {
		return siteSASL, err
	}
	f, err := r.ReadFrame()
	if err != nil {
		return siteHandshakeFrame, err
	}
	if f.Type != amqp.FrameSASL {
		return siteHandshakeFrame, fmt.Errorf("frame type %d instead of SASL: %w", f.Type, amqp.ErrFraming)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return siteHandshakeFrame, err
	}
	init, ok := p.(*amqp.SASLInit)
	if !ok {
		return siteHandshakeFrame, fmt.Errorf("%T instead of sasl-init: %w", p, amqp.ErrDecode)
	}
	var refusal error
	switch init.Mechanism {
	case "MSSBCBS", "ANONYMOUS":
	case "PLAIN":
		refusal = c.plain(init.InitialResponse)
	default:
		refusal = fmt.Errorf("mechanism %q is not supported", init.Mechanism)
	}
	outcome := &amqp.SASLOutcome{Outcome: amqp.SASLOK, AdditionalData: []byte(saslWelcome)}
	if refusal != nil {
		outcome = &amqp.SASLOutcome{Outcome: amqp.SASLAuth}
	}
	c.out = amqp.AppendFrame(c.out, 0, outcome)
	if err := c.send(); err != nil {
		return siteSASL, err
	}
	return siteSASL, refusal
}

// plain checks an RFC 4616 message: authorisation id, NUL, key name, NUL, key.
func (c *conn) plain(response []byte) error {
	parts := bytes.Split(response, []byte{0})
	if len(parts) != 3 {
		return fmt.Errorf("PLAIN response with %d parts, want 3", len(parts))
	}
	claim, err := c.s.policies.VerifyPlain(string(parts[1]), string(parts[2]))
	if err != nil {
		c.refusesPlain(string(parts[1]), err)
		return err
	}
	c.admitClaim("", claim)
	return nil
}

// open exchanges open frames and settles on limits.
func (c *conn) open(r *amqp.Reader) (site, error) {
	f, err := r.ReadFrame()
	for err == nil && f.Type == amqp.FrameAMQP && len(f.Body) == 0 {
		f, err = r.ReadFrame()
	}
	if err != nil {
		return siteHandshakeFrame, err
	}
	if f.Type != amqp.FrameAMQP {
		return siteHandshakeFrame, fmt.Errorf("frame type %d instead of open: %w", f.Type, amqp.ErrFraming)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return siteHandshakeFrame, c.refuseOpen(amqp.ConditionDecodeError, err)
	}
	open, ok := p.(*amqp.Open)
	if !ok {
		return siteHandshakeFrame, c.refuseOpen(amqp.ConditionIllegalState, fmt.Errorf("%T before open", p))
	}
	peer := open.MaxFrameSize.Or(c.cfg.MaxFrameBytes)
	if peer < minFrameBytes {
		return siteHandshakeFrame, c.refuseOpen(amqp.ConditionInvalidField,
			fmt.Errorf("max-frame-size %d is below %d", peer, minFrameBytes))
	}
	c.peerFrame = min(peer, c.cfg.MaxFrameBytes)
	c.maxChan = uint16(min(uint32(open.ChannelMax.Or(65535)), c.cfg.MaxChannels-1))
	if idle := open.IdleTimeOut.Or(0); idle > 0 && idle < minPeerIdle {
		return siteHandshakeFrame, c.refuseOpen(amqp.ConditionInvalidField, fmt.Errorf("idle-time-out %d ms is too short: "+
			"the broker sends a frame each %d ms at most, announce %d ms or more",
			idle, heartbeatMin.Milliseconds(), minPeerIdle))
	}
	c.beat = heartbeatMax
	if idle := open.IdleTimeOut.Or(0); idle > 0 {
		c.beat = max(min(c.beat, time.Duration(idle)*time.Millisecond/2), heartbeatMin)
	}
	c.container = open.ContainerID
	c.hostname = open.Hostname.Or("")
	if v, ok := open.Properties.Get("product"); ok {
		product, _ := v.Text()
		c.goClient = product == goProduct
		c.javaClient = product == javaProduct
		c.jsClient = product == jsProduct
		c.pythonClient = product == pythonProduct
		c.product = clipped(product)
	}
	if v, ok := open.Properties.Get("version"); ok {
		text, _ := v.Text()
		c.version = clipped(text)
	}
	c.introduced(open)
	c.openedAt = time.Now()
	r.SetMaxFrameSize(c.cfg.MaxFrameBytes)
	c.appendOpen()
	return siteHandshakeFrame, c.send()
}

// clipped copies the beginning of what a client says of itself.
func clipped(text string) string {
	const most = 100
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), most)]), "")
}

// introduced counts a connection whose client has opened it.
func (c *conn) introduced(open *amqp.Open) {
	c.sdk, c.isCounted = sdkOf(open), true
	c.s.stats.clients[c.protocol][c.sdk].Add(1)
	c.s.stats.seen[c.protocol][c.sdk].Store(true)
}

// goesUncounted takes a connection that has ended out of the clients of its kind.
func (c *conn) goesUncounted() {
	if c.isCounted {
		c.s.stats.clients[c.protocol][c.sdk].Add(-1)
	}
}

func (c *conn) appendOpen() {
	c.out = amqp.AppendFrame(c.out, 0, &amqp.Open{
		ContainerID:  c.s.containerID(),
		MaxFrameSize: amqp.Some(c.cfg.MaxFrameBytes),
		ChannelMax:   amqp.Some(uint16(c.cfg.MaxChannels - 1)),
		IdleTimeOut:  amqp.Some(uint32(c.cfg.IdleTimeout / time.Millisecond)),
	})
}

// refuseOpen answers open, as AMQP 1.0 §2.4.3 demands before a close, and closes.
func (c *conn) refuseOpen(condition amqp.Symbol, cause error) error {
	c.appendOpen()
	c.out = amqp.AppendFrame(c.out, 0, &amqp.Close{Error: c.tell(amqpError(condition, "%v", cause), "")})
	if err := c.send(); err != nil {
		c.log.Trace("write close", "error", err)
	}
	return cause
}
