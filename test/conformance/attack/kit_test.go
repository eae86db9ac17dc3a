package attack

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

var (
	long    = flag.Bool("long", false, "run the long form of every attack")
	figures = flag.Bool("figures", false, "measure the witness without the attack first")
)

// quietSends is how many messages the witness sends before an attack whose figures are wanted.
const quietSends = 300

// size chooses a number for the form that runs.
func size(short, full int) int {
	if *long {
		return full
	}
	return short
}

// patience bounds each wait for something that must happen.
const patience = 60 * time.Second

// maxLogged bounds the bytes of log lines that one attack makes a node write. The long form creates thousands of entities. Lines
// about strangers are limited per second, so a long run of streams may have eight bytes for each.
func maxLogged() int { return size(2<<20, 64<<20) + 8**streams }

// ground is what the attacks of this package share: one cluster of one node and one of three, with certificates and
// a key between the nodes and with issuers of tokens.
var ground struct {
	sync.Mutex
	dir      string
	ca       *authority
	keys     *keyServer
	key      []byte // of the gossip
	clusters map[int]*cluster.Cluster
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withGround(m))
}

func withGround(m *testing.M) int {
	dir, err := os.MkdirTemp("", "busbar-attack")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ground.dir, ground.clusters = dir, map[int]*cluster.Cluster{}
	defer func() {
		for _, c := range ground.clusters {
			c.Close()
		}
		if ground.keys != nil {
			ground.keys.close()
		}
	}()
	return m.Run()
}

// shared returns the cluster of so many nodes, and starts it for the first test that asks.
func shared(t *testing.T, nodes int) *cluster.Cluster {
	t.Helper()
	ground.Lock()
	defer ground.Unlock()
	if c := ground.clusters[nodes]; c != nil {
		return c
	}
	if ground.ca == nil {
		ground.ca, ground.keys = newAuthority(t), newKeyServer(t)
		ground.key = []byte("the gossip key of these attacks.")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dir := filepath.Join(ground.dir, fmt.Sprint(nodes))
	c, err := cluster.Start(ctx, dir, nodes, "--config", writeConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	ground.clusters[nodes] = c
	return c
}

// writeConfig writes the certificates and the file of settings of a cluster, and returns its name.
func writeConfig(t *testing.T, dir string) string {
	t.Helper()
	tls := filepath.Join(dir, "tls")
	if err := os.MkdirAll(tls, 0o700); err != nil {
		t.Fatal(err)
	}
	server := ground.ca.issue(t, "")
	for name, text := range map[string][]byte{
		"ca.pem": ground.ca.pem, "server.pem": server.chain, "server.key": server.key,
	} {
		if err := os.WriteFile(filepath.Join(tls, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf("tls-ca: %[1]s/ca.pem\ntls-cert: %[1]s/server.pem\ntls-key: %[1]s/server.key\ngossip-key: %[2]s\nclock-skew: 1s\n%[3]s",
		tls, base64.StdEncoding.EncodeToString(ground.key), ground.keys.settings())
	file := filepath.Join(dir, "busbar.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// attack is one attack on one cluster, with its witness and a queue of its own.
type attack struct {
	*testing.T
	ctx     context.Context
	c       *cluster.Cluster
	w       *witness
	queue   string
	sockets atomic.Int64 // that the attacker opened
	before  []state
	quiet   time.Duration // how long 99 of 100 sends of the witness took before the attack, with -figures
}

// state is what is known of one node before an attack.
type state struct {
	pid, logged int
	rss         int64
}

var oddBytes = regexp.MustCompile(`[^A-Za-z0-9]+`)

// onClusters makes an attack on one node and on three. f returns how large it was.
func onClusters(t *testing.T, f func(a *attack) string) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			t.Parallel() // with the attack on the other cluster
			against(t, shared(t, nodes), f)
		})
	}
}

// against makes an attack on a cluster and judges what it left.
func against(t *testing.T, c *cluster.Cluster, f func(a *attack) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(size(3, 150))*time.Minute+time.Duration(*streams)*20*time.Millisecond)
	defer cancel()
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			if t.Failed() && n.Pid() == 0 {
				t.Errorf("%s ended: %s", n.ID, n.Log(6000))
			}
		}
	})
	a := &attack{T: t, ctx: ctx, c: c, queue: strings.ToLower(oddBytes.ReplaceAllString(t.Name(), "-"))}
	admin, err := c.Nodes[0].Admin(false)
	a.must("admin client", err)
	_, err = admin.CreateQueue(ctx, a.queue, nil)
	a.must("create a queue", err)
	a.w = watchAt(ctx, t, c, a.queue+"-witness", 200)
	if *figures { // how long its sends take without the attack
		a.await("the witness sends", func() bool { return a.w.count() >= quietSends })
		a.quiet = a.w.p99(0)
	}
	for _, n := range c.Nodes {
		rss, err := n.RSS()
		a.must("resident memory", err)
		a.before = append(a.before, state{pid: n.Pid(), logged: len(n.Log(1 << 30)), rss: rss})
	}
	a.conclude(f(a))
}

func (a *attack) must(what string, err error) {
	a.Helper()
	if err != nil {
		a.Fatalf("%s: %v", what, err)
	}
}

// await waits until f is true.
func (a *attack) await(what string, f func() bool) {
	a.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || a.ctx.Err() != nil {
			a.Fatalf("waited in vain: %s", what)
		}
	}
}

// each calls f for every number below count, all beside each other.
func (a *attack) each(count int, f func(i int) error) {
	a.Helper()
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			if err := f(i); err != nil {
				a.Error(err)
			}
		})
	}
	all.Wait()
}

// dial opens a socket that ends with the test.
func (a *attack) dial(addr string) net.Conn {
	a.Helper()
	conn, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", addr)
	a.must("dial", err)
	a.sockets.Add(1)
	a.Cleanup(func() { _ = conn.Close() })
	return conn
}

// conclude demands that the witness lost nothing and met no error, and that every node lives, is ready, keeps no
// stranger and logged no panic.
func (a *attack) conclude(size string) {
	a.Helper()
	a.await("the witness sends", func() bool { return a.w.count() >= 20 })
	a.w.judge(a.ctx)
	for id, err := range a.w.doubt {
		a.Errorf("the witness was not told that %s is stored: %v", id, err)
	}
	for i, n := range a.c.Nodes {
		if n.Pid() != a.before[i].pid {
			a.Fatalf("%s ended: %s", n.ID, n.Log(4000))
		}
		a.must("ready", n.WaitReady(a.ctx))
		a.alone(n)
		if count, err := failures(a.ctx, n); err != nil || count > 0 {
			a.Errorf("%s: %d replicas have failed, %v", n.ID, count, err)
		}
		if v, err := n.Metric(a.ctx, `busbar_rejections_total{site="panic"}`); err != nil || v != 0 {
			a.Errorf("%s: %v panics, %v", n.ID, v, err)
		}
		log := n.Log(1 << 30)[a.before[i].logged:]
		for _, bad := range []string{"panic", "fatal error", "DATA RACE"} {
			if at := strings.Index(log, bad); at >= 0 {
				a.Errorf("%s logged %q: %s", n.ID, bad, log[at:min(len(log), at+4000)])
			}
		}
		if len(log) > maxLogged() {
			a.Errorf("%s logged %d bytes meanwhile, the last of them: %s", n.ID, len(log), log[len(log)-2000:])
		}
		rss, err := n.RSS()
		a.must("resident memory", err)
		first := 0
		if *figures {
			first = quietSends
		}
		a.Logf("figures | %s | %s | %s | %d to %d MB | %d of %d | %v, %v | %d | %d KB |", a.Name(), n.ID, size, a.before[i].rss>>20,
			rss>>20, len(a.w.doubt), a.w.count(), a.quiet, a.w.p99(first), a.sockets.Load(), len(log)>>10)
	}
}

// alone waits until a node has no connection, no link and nobody who has not authenticated.
func (a *attack) alone(n *cluster.Node) {
	a.Helper()
	for _, name := range []string{"busbar_connections", "busbar_links", `busbar_limit_used{limit="unauthenticated"}`} {
		left := 0.0
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			var err error
			left, err = n.Metric(a.ctx, name)
			a.must("metric", err)
			if left == 0 || time.Now().After(end) {
				break
			}
		}
		if left != 0 {
			a.Errorf("%s: %s is %v after the attack", n.ID, name, left)
		}
	}
}
