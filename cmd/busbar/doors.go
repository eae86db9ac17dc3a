package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cmd/busbar/process"
)

// doors are the listeners for clients and operators. They are bound before anything else opens, so
// a port in use is told at once.
type doors struct {
	clients []door
	ops     net.Listener
	opsTLS  *tls.Config // nil: plain
}

type door struct {
	listener net.Listener
	tls      *tls.Config // nil: plain
}

func (n *node) openDoors(ctx context.Context) error {
	d := &doors{}
	n.doors = d
	n.onClose(func(context.Context) error { // those that nobody serves yet
		for _, c := range d.clients {
			_ = c.listener.Close()
		}
		if d.ops != nil {
			_ = d.ops.Close()
		}
		return nil
	})
	var err error
	if d.ops, err = listen(ctx, "ops-listen", n.cfg.OpsListen); err != nil {
		return err
	}
	for _, addr := range n.cfg.AMQPListen {
		l, err := listen(ctx, "amqp-listen", addr)
		if err != nil {
			return err
		}
		d.clients = append(d.clients, door{listener: l})
	}
	var ports []int
	plain := len(d.clients)
	for _, addr := range n.cfg.TLSListen {
		l, err := listen(ctx, "tls-listen", addr)
		if err != nil {
			return err
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		d.clients = append(d.clients, door{listener: l})
	}
	if n.cfg.OpsTLS {
		ports = append(ports, d.ops.Addr().(*net.TCPAddr).Port)
	}
	if len(ports) == 0 {
		return nil
	}
	if n.cfg.TLSCert == "" {
		if err := n.certifyForDevelopment(ports); err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
	}
	identity := n.serverTLS()
	for i := plain; i < len(d.clients); i++ {
		d.clients[i].tls = identity
	}
	if n.cfg.OpsTLS {
		d.opsTLS = identity
	}
	return nil
}

// listen opens the listener of a setting; the error names the setting and its address.
func listen(ctx context.Context, setting, addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: process.LimitSegments}
	l, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: %w; to mend it: end what listens there, or choose another port by --%s; port 0 is any free one",
			setting, addr, err, setting)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", setting, addr, err)
	}
	return l, nil
}

// first returns the addresses of the first plain and the first TLS listener, nil if there is none.
func (d *doors) first() (plain, secure *net.TCPAddr) {
	for _, c := range d.clients {
		addr := c.listener.Addr().(*net.TCPAddr)
		switch {
		case c.tls == nil && plain == nil:
			plain = addr
		case c.tls != nil && secure == nil:
			secure = addr
		}
	}
	return plain, secure
}

func portOrZero(a *net.TCPAddr) int {
	if a == nil {
		return 0
	}
	return a.Port
}

func (d *doors) clientAddrs() []string {
	var out []string
	for _, c := range d.clients {
		if len(out) < cluster.MaxClientAddrs {
			out = append(out, c.listener.Addr().String())
		}
	}
	return out
}

// writePorts tells scripts and tests the real ports, when port 0 was asked for.
func (d *doors) writePorts(file string) error {
	plain, secure := d.first()
	text, err := json.Marshal(map[string]int{"amqp": portOrZero(plain), "tls": portOrZero(secure),
		"ops": d.ops.Addr().(*net.TCPAddr).Port})
	if err != nil {
		return err
	}
	return replaceFile(file, append(text, '\n'), 0o644)
}

// forDeveloper is the policy whose connection string a developer is given: the first that manages, and
// the root key's before all others. manages is false if there is none; then it is the first one.
func forDeveloper(policies []policy) (p policy, manages bool) {
	p = policies[0]
	for _, one := range policies {
		if slices.ContainsFunc(one.Rights, func(r string) bool { return strings.EqualFold(r, "Manage") }) &&
			(!manages || one.Name == devKeyName) {
			p, manages = one, true
		}
	}
	return p, manages
}
