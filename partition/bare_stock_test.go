package partition

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// This file is raft's NetworkTransport, stock, with a network that tests can cut, hold up and listen
// in on.

// stockNet connects stock transports by sockets in memory.
type stockNet struct {
	pipelined bool

	mu    sync.Mutex
	doors map[raft.ServerAddress]*stockDoor
	conns []net.Conn
	// before is asked before a call is sent, after when its answer has come; an error loses it there,
	// and both may wait. nil lets everything pass.
	before, after fate
}

// fate decides about one call; what is its name.
type fate func(from, to raft.ServerID, what string) error

var errLost = errors.New("lost on the way")

func (s *stockNet) set(before, after fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// isolated loses everything from and to a node.
func isolated(id raft.ServerID) fate {
	return func(from, to raft.ServerID, _ string) error {
		if from == id || to == id {
			return errLost
		}
		return nil
	}
}

func (s *stockNet) pass(from, to raft.ServerID, what string, call func() error) error {
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(from, to, what); err != nil {
			return err
		}
	}
	err := call()
	if after != nil {
		err = errors.Join(err, after(from, to, what))
	}
	return err
}

// stockDoor is where one transport listens. It implements raft.StreamLayer.
type stockDoor struct {
	net    *stockNet
	addr   raft.ServerAddress
	in     chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type doorAddr string

func (a doorAddr) Network() string { return "memory" }
func (a doorAddr) String() string  { return string(a) }

func (s *stockNet) listen(addr raft.ServerAddress) *stockDoor {
	d := &stockDoor{net: s, addr: addr, in: make(chan net.Conn), closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doors == nil {
		s.doors = map[raft.ServerAddress]*stockDoor{}
	}
	s.doors[addr] = d
	return d
}

func (d *stockDoor) Accept() (net.Conn, error) {
	select {
	case c := <-d.in:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *stockDoor) Close() error   { d.once.Do(func() { close(d.closed) }); return nil }
func (d *stockDoor) Addr() net.Addr { return doorAddr(d.addr) }

func (d *stockDoor) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	d.net.mu.Lock()
	o := d.net.doors[to]
	d.net.mu.Unlock()
	if o == nil {
		return nil, errLost
	}
	here, there := net.Pipe()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case o.in <- there:
		d.net.mu.Lock()
		d.net.conns = append(d.net.conns, here, there)
		d.net.mu.Unlock()
		return &farConn{here}, nil
	case <-o.closed:
		return nil, net.ErrClosed
	case <-t.C:
		return nil, errLost
	}
}

// farConn is a socket whose answers take a while.
type farConn struct{ net.Conn }

// answerTime is that while: long enough for the next call of a pipeline to be sent meanwhile.
const answerTime = time.Millisecond

func (c *farConn) Read(b []byte) (int, error) {
	time.Sleep(answerTime)
	return c.Conn.Read(b)
}

// hangUp closes every socket, so that a bubble can end.
func (s *stockNet) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

func (s *stockNet) stockTransport(addr raft.ServerAddress, inFlight int) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s.listen(addr), MaxPool: 3, Timeout: 10 * time.Second, Logger: hclog.NewNullLogger(),
		MaxRPCsInFlight: inFlight,
	})
}

// cable is the stock transport with the network of the test around it. fast says whether raft's
// heartbeat handler reaches it, as by default.
type cable struct {
	*raft.NetworkTransport
	net  *stockNet
	from raft.ServerID
	fast bool
}

func (c *cable) SetHeartbeatHandler(f func(raft.RPC)) {
	if c.fast {
		c.NetworkTransport.SetHeartbeatHandler(f)
	}
}

func (c *cable) AppendEntries(id raft.ServerID, to raft.ServerAddress, a *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	what := "append"
	if a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0 {
		what = "heartbeat" // as the transport at the other end tells them apart
	}
	return c.net.pass(c.from, id, what, func() error {
		return c.NetworkTransport.AppendEntries(id, to, a, resp)
	})
}

func (c *cable) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if !c.net.pipelined {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	return c.NetworkTransport.AppendEntriesPipeline(id, to)
}

func (c *cable) RequestVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	return c.net.pass(c.from, id, "vote", func() error {
		return c.NetworkTransport.RequestVote(id, to, a, resp)
	})
}

func (c *cable) RequestPreVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	return c.net.pass(c.from, id, "pre-vote", func() error {
		return c.NetworkTransport.RequestPreVote(id, to, a, resp)
	})
}

func (c *cable) TimeoutNow(id raft.ServerID, to raft.ServerAddress, a *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return c.net.pass(c.from, id, "timeout now", func() error {
		return c.NetworkTransport.TimeoutNow(id, to, a, resp)
	})
}

// gatedStable is a store of terms and votes whose writes wait.
type gatedStable struct {
	raft.StableStore
	gate   atomic.Pointer[chan struct{}] // nil: they do not
	inside atomic.Int32                  // calls that wait
}

func (g *gatedStable) SetUint64(key []byte, v uint64) error {
	if gate := g.gate.Load(); gate != nil {
		g.inside.Add(1)
		<-*gate
		g.inside.Add(-1)
	}
	return g.StableStore.SetUint64(key, v)
}

// stockCluster is three nodes over stock transports.
type stockCluster struct {
	*bareCluster
	net *stockNet
}

type stockOptions struct {
	pipelined bool
	inFlight  int // calls of a pipeline, 0 for raft's default
	fast      bool
	slow      raft.ServerID // a node whose clock runs slow: its time-outs are twenty times as long
}

func stock(t *testing.T, o stockOptions) *stockCluster {
	t.Helper()
	s := &stockNet{pipelined: o.pipelined}
	b := bareOver(t, func(n *bareNode) raft.Transport {
		return &cable{s.stockTransport(raft.ServerAddress(n.id), o.inFlight), s, n.id, o.fast}
	}, func(c *raft.Config) {
		if c.LocalID == o.slow {
			c.HeartbeatTimeout *= 20
			c.ElectionTimeout *= 20
			c.LeaderLeaseTimeout *= 20
		}
	})
	return &stockCluster{b, s}
}

func (c *stockCluster) close() {
	c.bareCluster.close()
	c.net.hangUp()
}

// abandon ends what can be ended of a cluster in which a goroutine is stuck.
func (c *stockCluster) abandon() {
	for _, n := range c.nodes {
		n.r.Shutdown()
		_ = n.tr.(raft.WithClose).Close()
	}
	c.net.hangUp()
}

// lead makes a node the leader.
func (c *stockCluster) lead(id raft.ServerID) *bareNode {
	c.t.Helper()
	for range 100 {
		for _, n := range c.nodes {
			switch {
			case n.r.State() != raft.Leader:
			case n.id == id:
				return n
			default:
				_ = n.r.LeadershipTransferToServer(id, raft.ServerAddress(id)).Error()
			}
		}
		time.Sleep(time.Second)
	}
	c.t.Fatalf("%s does not become leader", id)
	return nil
}
