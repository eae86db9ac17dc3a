package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// greetWait is how long the greeting waits for the partitions to have leaders, so that it is the last thing on the
// terminal.
const greetWait = 3 * time.Second

// greet tells a developer what listens where, what to paste into a client, and what to try next. On a terminal the lines
// stand between two rules.
func (n *node) greet(ctx context.Context, out io.Writer) {
	limit, cancel := context.WithTimeout(ctx, greetWait)
	defer cancel()
	for n.host.Ready(limit) != nil && limit.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if ctx.Err() != nil && !n.wasReady(ctx) {
		return
	}
	lines := n.greeting(time.Since(n.started))
	if f, is := out.(*os.File); is && onTerminal(f) {
		lines = between(lines)
	}
	fmt.Fprintln(out, strings.Join(lines, "\n"))
}

// wasReady reports whether a node that is to stop was ready before. A test may stop the node as soon as it is ready, and read
// its output.
func (n *node) wasReady(ctx context.Context) bool {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return n.host.Ready(limit) == nil
}

// greeting returns the lines. took is the time since the start.
func (n *node) greeting(took time.Duration) []string {
	p, manages := forDeveloper(n.cfg.Policies)
	shown := string(p.Primary)
	if shown != devKey { // everybody knows that one, and no other belongs on a terminal or in a log
		shown = "<the key of " + p.Name + ">"
	}
	key := "SharedAccessKeyName=" + p.Name + ";SharedAccessKey=" + shown
	plain, secure := n.doors.first()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("Busbar %s is ready after %d ms", programVersion(), took.Milliseconds())
	add("")
	if plain != nil {
		add("plain:      Endpoint=sb://%s;%s;UseDevelopmentEmulator=true", shownHost(plain), key)
	}
	if secure != nil {
		add("TLS:        Endpoint=sb://%s;%s", shownHost(secure), key)
		add("            trust %s", filepath.Join(n.cfg.DevCADir, "ca.pem"))
	}
	scheme := "http"
	if n.cfg.OpsTLS {
		scheme = "https"
	}
	add("operations: %s://%s", scheme, shownHost(n.doors.ops.Addr().(*net.TCPAddr)))
	if n.cfg.Console {
		add("console:    %s://%s/ in a browser", scheme, shownHost(n.doors.ops.Addr().(*net.TCPAddr)))
	}
	if n.cfg.Ephemeral {
		add("data:       removed when the node stops")
	} else {
		add("data:       %s", n.cfg.DataDir)
	}
	add("")
	switch {
	case !manages:
		add("WARNING: no access key manages this node. Nobody can create a queue or topic, and the command")
		add("         line is refused. Set root-key, or give one of the policies the rights Send, Listen and Manage.")
	case shown == devKey && n.isDefault(plain):
		add("Try in another terminal: %[1]s queue create orders && %[1]s send orders hello && %[1]s receive orders", os.Args[0])
	case plain != nil:
		add("Try in another terminal, with the first string as SERVICEBUS_CONNECTION_STRING: %s queue create orders",
			os.Args[0])
	}
	if shown == devKey {
		for _, a := range n.doors.openToOthers() {
			add("WARNING: %s is open to other machines, and the key of --dev is public.", a)
		}
	}
	return lines
}

// isDefault reports whether the command line finds the node without a connection string.
func (n *node) isDefault(plain *net.TCPAddr) bool {
	return plain != nil && plain.Port == defaultPlainPort && (plain.IP.IsLoopback() || plain.IP.IsUnspecified())
}

// defaultPlainPort is the port of plain AMQP.
const defaultPlainPort = 5672

// shownHost returns host and port by which a client on this machine reaches a listener.
func shownHost(a *net.TCPAddr) string {
	host := a.IP.String()
	if a.IP.IsUnspecified() || a.IP.Equal(net.IPv4(127, 0, 0, 1)) || a.IP.Equal(net.IPv6loopback) {
		host = "localhost"
	}
	return net.JoinHostPort(host, fmt.Sprint(a.Port))
}

// openToOthers returns the addresses of listeners that other machines can reach.
func (d *doors) openToOthers() (out []string) {
	all := []net.Listener{d.ops}
	for _, c := range d.clients {
		all = append(all, c.listener)
	}
	for _, l := range all {
		if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() {
			out = append(out, a.String())
		}
	}
	return out
}

// between puts lines between two rules. A frame at the sides would be pasted with the strings.
func between(lines []string) []string {
	rule := strings.Repeat("─", ruleWidth)
	return slices.Concat([]string{rule}, lines, []string{rule})
}

const ruleWidth = 72
