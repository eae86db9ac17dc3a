package acted

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// dialLimit bounds how long a balancer waits for a pod.
const dialLimit = 10 * time.Second

// balancer is one port of a Service's address. It hands each connection to a pod by chance, as the rules of a machine do.
// The connection stays there: the end of a pod's readiness moves none. While the Service has no pod it refuses
// connections.
type balancer struct {
	address string
	port    int32 // of the pods
	pick    func() []string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	closed   bool
	wg       sync.WaitGroup
}

// follow opens and closes the port as the Service gets and loses its pods.
func (b *balancer) follow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	some := len(b.pick()) > 0
	switch {
	case b.closed:
	case some && b.listener == nil:
		l, err := net.Listen("tcp", b.address)
		if err != nil {
			return err
		}
		b.listener = l
		b.wg.Go(func() { b.accept(l) })
	case !some && b.listener != nil:
		_ = b.listener.Close()
		b.listener = nil
	}
	return nil
}

func (b *balancer) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.carry(c) })
	}
}

// carry connects a client with a pod until both have ended.
func (b *balancer) carry(client net.Conn) {
	defer b.keep(client)()
	pods := b.pick()
	if len(pods) == 0 {
		reset(client)
		return
	}
	pod, err := net.DialTimeout("tcp", net.JoinHostPort(pods[rand.IntN(len(pods))], strconv.Itoa(int(b.port))), dialLimit)
	if err != nil {
		reset(client)
		return
	}
	defer b.keep(pod)()
	var both sync.WaitGroup
	both.Go(func() { pass(pod, client) })
	both.Go(func() { pass(client, pod) })
	both.Wait()
}

// keep remembers a connection for close; what it returns closes it.
func (b *balancer) keep(c net.Conn) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = c.Close()
	}
	b.conns[c] = true
	return func() {
		_ = c.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.conns, c)
	}
}

// pass copies one direction. An end is passed on as an end, and a reset as a reset.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	switch {
	case err == nil:
		_ = to.(*net.TCPConn).CloseWrite()
	case !errors.Is(err, net.ErrClosed):
		reset(to)
		reset(from)
	}
}

// reset ends a connection by RST.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// close ends the port and all its connections.
func (b *balancer) close() {
	b.mu.Lock()
	b.closed = true
	if b.listener != nil {
		_ = b.listener.Close()
	}
	for c := range b.conns {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}
