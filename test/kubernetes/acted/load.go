package acted

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/ledger"
)

// The load of the Go SDK: as many clients send as receive.
const (
	producers    = 4
	sessions     = 6
	sendPause    = 40 * time.Millisecond // between two sends of a series
	receivePause = 2 * time.Second       // how long a call waits for a message that may not come
	settleLimit  = 3 * time.Second       // of settlements that are under way when the receivers end
	callLimit    = 2 * time.Minute       // of one operation with all retries of the SDK; the default ones take less
)

// The queues of the load: one plain, one whose series are sessions.
const (
	plainQueue   = "plain"
	orderedQueue = "ordered"
)

// Load is a number of clients that reach the nodes by the Service, with the retries that their SDK has by default.
type Load struct {
	Ledger *ledger.Ledger
	kube   *Kube
	stop   chan struct{}   // closed: producers end
	over   context.Context // receivers end
	end    context.CancelFunc
	cut    context.Context // so do settlements that are under way
	sever  context.CancelFunc
	makers sync.WaitGroup
	takers sync.WaitGroup

	ordered map[string]bool // the queues with sessions
	foreign []*foreign
	pulse   *pulse // of all clients

	mu     sync.Mutex
	counts map[string]int // operations by kind; those that failed have "failed" in front
}

// operation is one call of a client.
type operation struct {
	what  string
	began time.Time
}

func begin(what string) operation { return operation{what, time.Now()} }

// Endpoint is the name by which clients reach the Service.
func (k *Kube) Endpoint() string { return k.set.Stateful.Name + "." + space + ".svc" }

// ConnectionString is what an application in the cluster would be given.
func (k *Kube) ConnectionString() string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=%s", k.Endpoint(),
		k.secrets["busbar-keys"]["root-key"])
}

// Authority is the certificate of the authority, PEM.
func (k *Kube) Authority() []byte { return k.secrets[k.set.Certificate.Spec.SecretName]["ca.crt"] }

func (k *Kube) tlsConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(k.Authority())
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// client is a client of the SDK with its default options but for the authority.
func (k *Kube) client() (*azservicebus.Client, error) {
	return azservicebus.NewClientFromConnectionString(k.ConnectionString(), &azservicebus.ClientOptions{TLSConfig: k.tlsConfig()})
}

// MakeQueue makes a queue by the management API of the Service, with or without sessions and duplicate detection.
func (k *Kube) MakeQueue(ctx context.Context, name string, sessions, once bool) error {
	c, err := admin.NewClientFromConnectionString(k.ConnectionString(), &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: k.tlsConfig()}}}})
	if err != nil {
		return err
	}
	_, err = c.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		RequiresSession: &sessions, RequiresDuplicateDetection: &once}})
	return err
}

// StartLoad makes the queues and starts the clients of the Go SDK, and those of the languages that libraries names. The
// library of each is in the directory that it names. once gives the queues duplicate detection. Where a pod is killed the
// SDK repeats a send whose answer was lost, and nothing else keeps the message from being stored twice.
func (k *Kube) StartLoad(ctx context.Context, once bool, libraries map[string]string) (*Load, error) {
	l := &Load{Ledger: ledger.New(), kube: k, stop: make(chan struct{}), pulse: newPulse(k.began), counts: map[string]int{},
		ordered: map[string]bool{}}
	suffixes := []string{""}
	for name := range libraries {
		suffixes = append(suffixes, "-"+name)
	}
	for _, suffix := range suffixes {
		l.ordered[orderedQueue+suffix] = true
		err := errors.Join(k.MakeQueue(ctx, plainQueue+suffix, false, once), k.MakeQueue(ctx, orderedQueue+suffix, true, once))
		if err != nil {
			return nil, fmt.Errorf("make queues: %w", err)
		}
	}
	l.over, l.end = context.WithCancel(context.Background())
	l.cut, l.sever = context.WithCancel(context.Background())
	for i := range producers {
		l.produce(plainQueue, fmt.Sprintf("series-%d", i), false)
		l.consume()
	}
	for i := range sessions {
		l.produce(orderedQueue, fmt.Sprintf("session-%d", i), true)
		l.hold()
	}
	for _, lang := range foreignLanguages {
		if dir, ok := libraries[lang.name]; ok {
			if err := l.addForeign(lang, dir); err != nil {
				return nil, fmt.Errorf("load of %s: %w", lang.name, err)
			}
		}
	}
	return l, nil
}

// did counts an operation. An error is a fault of the run, unless the operation was under way over a connection to a pod
// that was killed. The SDK does not settle over another connection what came over a lost one.
func (l *Load) did(o operation, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[o.what]++
	switch {
	case err == nil:
		if o.what == "send" || o.what == "complete" {
			l.pulse.beat()
		}
	case l.kube.lostSince(o.began) && (hasCode(err, azservicebus.CodeConnectionLost) || l.over.Err() != nil):
		l.counts["lost with a pod: "+o.what]++
	default:
		l.counts["failed "+o.what]++
		l.Ledger.Fault("%s failed after %s: %v", o.what, time.Since(o.began).Round(time.Millisecond), err)
		l.kube.say("%s failed: %v", o.what, err)
	}
	return err == nil
}

// hasCode reports whether an error of the SDK has one of these codes.
func hasCode(err error, codes ...azservicebus.Code) bool {
	var se *azservicebus.Error
	return errors.As(err, &se) && slices.Contains(codes, se.Code)
}

// note counts something that is no operation.
func (l *Load) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// Counts tells all counts in one line.
func (l *Load) Counts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for what, n := range l.counts {
		all = append(all, fmt.Sprintf("%s %d", what, n))
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}

// produce sends numbered messages in one series with a client of its own until told to stop.
func (l *Load) produce(queue, series string, session bool) {
	l.makers.Go(func() {
		c, err := l.kube.client()
		if !l.did(begin("new client"), err) {
			return
		}
		defer leave(c)
		s, err := c.NewSender(queue, nil)
		if !l.did(begin("new sender"), err) {
			return
		}
		for n := 1; ; n++ {
			select {
			case <-l.stop:
				return
			case <-time.After(sendPause):
			}
			m := ledger.Message{Queue: queue, Series: series, Number: n}
			id := string(m.Body())
			out := &azservicebus.Message{Body: m.Body(), MessageID: &id}
			if session {
				out.SessionID = &series
			}
			ctx, cancel := context.WithTimeout(context.Background(), callLimit)
			o := begin("send")
			err := s.SendMessage(ctx, out, nil)
			cancel()
			fate := ledger.Acknowledged
			if !l.did(o, err) {
				fate = ledger.Unknown
			}
			l.Ledger.Submitted(m, fate)
		}
	})
}

// leave closes a client without waiting for long.
func leave(c *azservicebus.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// consume takes from the plain queue with one receiver for the whole run.
func (l *Load) consume() {
	l.takers.Go(func() {
		c, err := l.kube.client()
		if !l.did(begin("new client"), err) {
			return
		}
		defer leave(c)
		r, err := c.NewReceiverForQueue(plainQueue, nil)
		if !l.did(begin("new receiver"), err) {
			return
		}
		for l.over.Err() == nil {
			o := begin("receive")
			if _, err := l.take(plainQueue, r, 10); !l.did(o, err) {
				pause(l.over, 100*time.Millisecond) // a fault that repeats must not fill the log
			}
		}
	})
}

// nothing reports whether an error only says that nothing came in time.
func nothing(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || hasCode(err, azservicebus.CodeTimeout)
}

// take receives once and completes what came. Its error is that of the receiving. A message is completed over the connection
// that it came over, so the settlement of each is under way since the messages came.
func (l *Load) take(queue string, r receiver, most int) (n int, err error) {
	ctx, cancel := context.WithTimeout(l.over, receivePause)
	got, err := r.ReceiveMessages(ctx, most, nil)
	cancel()
	o := begin("complete")
	for _, g := range got {
		m, bad := ledger.Parse(queue, g.Body)
		if bad != nil {
			l.Ledger.Fault("%s: body %q: %v", queue, g.Body, bad)
			continue
		}
		l.Ledger.Received(m, *g.SequenceNumber)
		ctx, cancel := context.WithTimeout(l.cut, callLimit)
		err := r.CompleteMessage(ctx, g, nil)
		cancel()
		if queue == orderedQueue && lostSession(err) {
			return n, err
		}
		if l.did(o, err) {
			l.Ledger.Done(m)
			n++
		}
	}
	if nothing(err) || l.over.Err() != nil {
		return n, nil
	}
	return n, err
}

// lostSession reports whether a session receiver has lost its link, and the lock of the session with it. The SDK leaves
// it to the application to accept the session again: no session outlives its link, in the original as here.
func lostSession(err error) bool {
	var told *amqp.Error // of the SDK's attempt to take the session again, which another holder has by then
	return hasCode(err, azservicebus.CodeConnectionLost, azservicebus.CodeLockLost) ||
		errors.As(err, &told) && told.Condition == "com.microsoft:session-cannot-be-locked"
}

// hold accepts the next session over and over, takes what it has, and gives it back.
func (l *Load) hold() {
	l.takers.Go(func() {
		c, err := l.kube.client()
		if !l.did(begin("new client"), err) {
			return
		}
		defer leave(c)
		for l.over.Err() == nil {
			ctx, cancel := context.WithTimeout(l.over, callLimit)
			o := begin("accept session")
			r, err := c.AcceptNextSessionForQueue(ctx, orderedQueue, nil)
			cancel()
			if l.over.Err() != nil || nothing(err) {
				continue
			}
			if hasCode(err, azservicebus.CodeConnectionLost) { // the SDK accepts once, without retries
				l.note("accepts that ended with their connections")
				pause(l.over, 100*time.Millisecond)
				continue
			}
			if l.did(o, err) {
				l.drainSession(r)
			}
		}
	})
}

// drainSession takes from one session, one message at a time. With more credit the SDK gives back what comes after it has
// returned, and takes it again behind its successors.
func (l *Load) drainSession(r *azservicebus.SessionReceiver) {
	for range 25 {
		o := begin("receive from session")
		n, err := l.take(orderedQueue, r, 1)
		if lostSession(err) {
			l.note("sessions that ended with their links")
			return
		}
		l.did(o, err)
		if n == 0 {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_ = r.Close(ctx) // a link that is gone is closed
}

// Finish ends the senders, waits until every acknowledged message has come, ends the receivers, and returns what was wrong.
func (l *Load) Finish(ctx context.Context) []string {
	close(l.stop)
	rates := l.Pulses() // senders that have been told to stop are no lull
	l.makers.Wait()
	for _, f := range l.foreign {
		f.stop()
	}
	l.kube.say("%s", rates)
	for {
		n, example := l.Ledger.Missing()
		if n == 0 {
			break
		}
		if !pause(ctx, 100*time.Millisecond) {
			l.kube.say("%d messages have not come, such as %v", n, example)
			break
		}
	}
	pause(ctx, time.Second) // what comes twice comes now
	l.end()
	late := time.AfterFunc(settleLimit, l.sever)
	l.takers.Wait()
	late.Stop()
	l.sever()
	for _, f := range l.foreign {
		f.end()
	}
	return l.Ledger.Judge(l.ordered)
}

// Pulses tells the rate of all clients together, and that of each other language.
func (l *Load) Pulses() string {
	all := []string{"all clients: " + l.pulse.String()}
	for _, f := range l.foreign {
		all = append(all, f.name+": "+f.pulse.String())
	}
	return strings.Join(all, "\n")
}
