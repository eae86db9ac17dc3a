package conformance

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/cluster"
)

// dial opens an AMQP connection that shows the key in SASL PLAIN and cuts what it sends and wants
// into frames of the given size.
func (e *env) dial(i int, frame uint32) *amqp.Session {
	n := e.node(i)
	opt := &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(cluster.KeyName, cluster.Key), MaxFrameSize: frame}
	addr := "amqp://" + n.AMQP
	if e.secure {
		cfg, err := n.TLSConfig()
		e.must("read the authority", err)
		opt.TLSConfig, addr = cfg, "amqps://"+n.TLS
	}
	conn, err := amqp.Dial(e.ctx, addr, opt)
	e.must("dial", err)
	e.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewSession(e.ctx, nil)
	e.must("begin", err)
	return s
}

// S-137; T-55
func preSettled(e *env) {
	q := e.queue(nil)
	s, err := e.dial(0, 0).NewSender(e.ctx, q, &amqp.SenderOptions{
		SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	e.must("attach", err)
	for i := range 10 {
		e.must("send", s.Send(e.ctx, amqp.NewMessage([]byte(fmt.Sprint(i))), nil))
	}
	r := e.receiver(e.client(1), q, nil)
	ms := e.take(r, 10)
	for i, m := range ms {
		e.check(string(m.Body) == fmt.Sprint(i), "position %d holds %q", i, m.Body)
	}
	e.complete(r, ms...)
}

// S-226; RUL-9
func smallFrames(e *env) {
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(2048))})
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16)
	s, err := e.dial(0, 4096).NewSender(e.ctx, q, nil)
	e.must("attach sender", err)
	e.must("send", s.Send(e.ctx, amqp.NewMessage(body), nil))
	r, err := e.dial(1, 4096).NewReceiver(e.ctx, q, &amqp.ReceiverOptions{
		SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	e.must("attach receiver", err)
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	m, err := r.Receive(ctx, nil)
	e.must("receive", err)
	e.check(bytes.Equal(m.GetData(), body), "1 MiB came back changed, %d bytes", len(m.GetData()))
	e.must("accept", r.AcceptMessage(e.ctx, m))
	e.must("detach", r.Close(e.ctx)) // it has credit again and would take the next one
	// The SDK reads the same.
	e.send(e.sender(e.client(0), q), &azservicebus.Message{Body: body})
	sdk := e.receiver(e.client(2), q, nil)
	got := e.one(sdk)
	e.check(bytes.Equal(got.Body, body), "1 MiB came back changed to the SDK, %d bytes", len(got.Body))
	e.complete(sdk, got)
}

// S-2
func wrongKey(e *env) {
	q := e.queue(nil)
	n := e.node(0)
	cs := strings.Replace(n.ConnectionString(e.secure), "SharedAccessKey="+cluster.Key, "SharedAccessKey=wrong", 1)
	c, err := n.ClientFor(cs, e.secure, cluster.Retry)
	e.must("new client", err)
	defer func() { _ = c.Close(context.Background()) }()
	err = e.sender(c, q).SendMessage(e.ctx, text("x"), nil)
	e.wantCode("send with a wrong key", err, azservicebus.CodeUnauthorizedAccess)
	_, err = e.receiver(c, q, nil).ReceiveMessages(e.ctx, 1, nil)
	e.wantCode("receive with a wrong key", err, azservicebus.CodeUnauthorizedAccess)
	a, err := n.AdminFor(cs, e.secure)
	e.must("new admin client", err)
	_, err = a.CreateQueue(e.ctx, e.name(), nil)
	e.check(err != nil && strings.Contains(err.Error(), "401"), "create with a wrong key: %v, want 401", err)
}

// S-2
func signature(e *env) {
	q := e.queue(nil)
	n := e.node(0)
	cs := n.ConnectionString(e.secure)
	endpoint, _, _ := strings.Cut(cs, ";")
	host := strings.Trim(strings.TrimPrefix(endpoint, "Endpoint=sb://"), "/")
	sas := func(expiry time.Time) string {
		sr := url.QueryEscape("sb://" + host + "/" + q)
		mac := hmac.New(sha256.New, []byte(cluster.Key))
		fmt.Fprintf(mac, "%s\n%d", sr, expiry.Unix())
		sig := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		s := fmt.Sprintf("%s;SharedAccessSignature=SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s",
			endpoint, sr, sig, expiry.Unix(), cluster.KeyName)
		if !e.secure {
			s += ";UseDevelopmentEmulator=true"
		}
		return s
	}
	good, err := n.ClientFor(sas(time.Now().Add(time.Hour)), e.secure, cluster.Retry)
	e.must("new client", err)
	defer func() { _ = good.Close(context.Background()) }()
	e.send(e.sender(good, q), text("signed"))
	old, err := n.ClientFor(sas(time.Now().Add(-time.Hour)), e.secure, cluster.Retry)
	e.must("new client", err)
	defer func() { _ = old.Close(context.Background()) }()
	err = e.sender(old, q).SendMessage(e.ctx, text("stale"), nil)
	e.wantCode("send with an expired signature", err, azservicebus.CodeUnauthorizedAccess)
}
