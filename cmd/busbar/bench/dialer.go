package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// dialer makes the connections of a run, in turn to each address.
type dialer struct {
	targets []*dial.Target // by connection string: CBS
	urls    []*url.URL
	roots   *x509.CertPool
	limit   time.Duration
	count   int
	// receiveBuffer is the size of the socket's receive buffer in bytes; 0 leaves it to the system.
	receiveBuffer int
	version       string // of this program; the broker is told
}

func newDialer(f *dial.Flags, urls, hosts []string) (*dialer, error) {
	d := &dialer{limit: f.Timeout, version: f.Version()}
	if len(urls) == 0 {
		t, err := f.Target()
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			other := *t
			other.Host = h
			d.targets = append(d.targets, &other)
		}
		if len(hosts) == 0 {
			d.targets = []*dial.Target{t}
		}
		return d, nil
	}
	if err := f.CheckOutput(); err != nil {
		return nil, err
	}
	if f.Connection != "" || len(hosts) > 0 {
		return nil, exit.Usagef("--url goes without --connection-string and --host")
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "amqp" && u.Scheme != "amqps" {
			return nil, exit.Usagef("--url must be amqp://[user:password@]host[:port] or amqps://") // it may hold a password
		}
		d.urls = append(d.urls, u)
	}
	if f.CAFile != "" {
		roots, err := dial.ReadRoots(f.CAFile)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		d.roots = roots
	}
	return d, nil
}

func (d *dialer) queue(args []string) (string, error) {
	if len(args) > 1 {
		return "", exit.Usagef("bench takes one queue")
	}
	if len(d.targets) > 0 {
		name, _, err := d.targets[0].Queue(args)
		return name, err
	}
	if len(args) == 0 {
		return "", exit.Usagef("name a queue, as the broker addresses it")
	}
	return args[0], nil
}

// create makes the queues that do not exist.
func (d *dialer) create(ctx context.Context, cfg *loadConfig, partitioned bool) error {
	if len(d.targets) == 0 {
		return exit.Usagef("--create needs a connection string")
	}
	description := dial.Tag("LockDuration", "PT1M") + dial.Tag("MaxSizeInMegabytes", "81920") +
		dial.Tag("RequiresSession", strconv.FormatBool(cfg.Sessions > 0)) +
		dial.Tag("EnablePartitioning", strconv.FormatBool(partitioned))
	m := dial.NewManagement(d.targets[0], d.limit)
	for i := range cfg.Queues {
		if _, err := m.Create(ctx, cfg.queue(i), "QueueDescription", description); err != nil && exit.Code(err) != exit.Conflict {
			return err
		}
	}
	return nil
}

// dial opens the next connection, with the right to use the queue.
func (d *dialer) dial(ctx context.Context, queue string) (*amqp.Conn, error) {
	i := d.count
	d.count++
	if len(d.targets) > 0 {
		w, err := dial.ConnectBy(ctx, d.connect, d.targets[i%len(d.targets)], queue, d.limit)
		if err != nil {
			return nil, err
		}
		return w.Conn, nil
	}
	u := *d.urls[i%len(d.urls)]
	opt := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(),
		Properties: map[string]any{"product": "busbar-bench", "version": d.version}}
	if u.User != nil {
		password, _ := u.User.Password()
		opt.SASLType = amqp.SASLTypePlain(u.User.Username(), password)
		u.User = nil
	}
	if u.Scheme == "amqps" {
		opt.TLSConfig = &tls.Config{RootCAs: d.roots, MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	}
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	conn, err := d.connect(ctx, u.String(), opt)
	return conn, dial.Failure("connect to "+u.Host, err)
}

// connect opens an AMQP connection whose socket has the receive buffer of d.
func (d *dialer) connect(ctx context.Context, to string, options *amqp.ConnOptions) (*amqp.Conn, error) {
	if d.receiveBuffer == 0 {
		return amqp.Dial(ctx, to, options)
	}
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"amqp": "5672", "amqps": "5671"}[u.Scheme]
	}
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if err := socket.(*net.TCPConn).SetReadBuffer(d.receiveBuffer); err != nil {
		_ = socket.Close()
		return nil, err
	}
	if u.Scheme == "amqps" {
		secure := options.TLSConfig.Clone()
		secure.ServerName = u.Hostname()
		socket = tls.Client(socket, secure)
	}
	options.HostName = u.Hostname()
	return amqp.NewConn(ctx, socket, options)
}

// dialAll opens the connections of a run; all or none.
func (d *dialer) dialAll(ctx context.Context, cfg *loadConfig) ([]*amqp.Conn, error) {
	queue := cfg.Queue
	if cfg.Queues > 1 {
		queue = "" // the right to use all of the namespace
	}
	var all []*amqp.Conn
	for range cfg.Connections {
		c, err := d.dial(ctx, queue)
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("connection %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func closeAll(conns []*amqp.Conn) {
	for _, c := range slices.Backward(conns) {
		_ = c.Close()
	}
}
