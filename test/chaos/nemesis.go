package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// nemesis is one kind of fault.
type nemesis struct {
	name string
	// missing returns why the fault cannot be made here, "" if it can.
	missing func(b *bed) string
	// strike makes the fault, on node n where the kind is about a node. A fault is taken back within limit even if
	// nobody calls heal.
	strike func(s *strike) error
	// whole says that the fault is about all nodes, so nothing else happens to a node meanwhile.
	whole bool
	// network says that the fault leaves the processes and disks alone.
	network bool
}

// strike is one fault that is happening.
type strike struct {
	*nemesis
	bed   *bed
	n     *node // the one it is about, the first one of several
	rng   *rand.Rand
	limit time.Duration

	say   func(format string, args ...any)
	what  string           // for the log
	heals []func() error   // in the order of making; undone backwards
	bites func(*bed) error // nil when the fault has bitten, asked while it lasts
	began time.Time
	ended time.Time
	bit   error
}

func (s *strike) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.limit)
}

func (s *strike) onHeal(f func() error) { s.heals = append(s.heals, f) }

// heal takes everything back.
func (s *strike) heal() error {
	var first error
	for i := len(s.heals) - 1; i >= 0; i-- {
		if err := s.heals[i](); err != nil && first == nil {
			first = fmt.Errorf("%s: %w", s.name, err)
		}
	}
	s.ended = time.Now()
	return first
}

func never(*bed) string { return "" }

func needDisk(b *bed) string {
	if b.nodes[0].disk == nil {
		return "the nodes have no disks of their own"
	}
	return ""
}

func needTrigger(b *bed) string {
	if why := needDisk(b); why != "" {
		return why
	}
	device, err := b.nodes[0].disk.device()
	if err == nil {
		_, err = os.Stat(trigger(device))
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func needNamespaces(b *bed) string {
	if b.network == overLoopback {
		return "the nodes have no namespaces of their own"
	}
	return ""
}

func needProxies(b *bed) string {
	if b.network != overProxies {
		return "the nodes do not speak through proxies"
	}
	return ""
}

func needBridge(b *bed) string {
	if b.network != overBridge {
		return "the nodes do not speak to one another directly"
	}
	return ""
}

// finish is the fault behind which no program is exchanged any more.
const finish = "finish the upgrade"

// nemeses are all kinds of faults.
func nemeses() []*nemesis {
	return []*nemesis{
		{name: "kill", missing: never, strike: kill},
		{name: "kill the busiest", missing: never, strike: killBusiest},
		{name: "stop in good order", missing: never, strike: stop},
		{name: "pause", missing: never, strike: pause},
		{name: "pause the busiest", missing: never, strike: pauseBusiest},
		{name: "kill all", missing: never, strike: killAll, whole: true},
		{name: "restart one after the other", missing: never, strike: rolling, whole: true},
		{name: "move leaders", missing: never, strike: moveLeaders, network: true},
		{name: "lose a host", missing: needNamespaces, strike: isolate, network: true},
		{name: "cut a pair", missing: needBridge, strike: cutPair, network: true},
		{name: "cut one way", missing: needBridge, strike: cutOneWay, network: true},
		{name: "delay", missing: needProxies, strike: delay, network: true},
		{name: "reset", missing: needProxies, strike: reset, network: true},
		{name: "half-open", missing: needProxies, strike: halfOpen, network: true},
		{name: "one way", missing: needProxies, strike: oneWay, network: true},
		{name: "refuse connections", missing: needProxies, strike: refuse, network: true},
		{name: "lose gossip", missing: needProxies, strike: loseGossip, network: true},
		{name: "fill the disk", missing: needDisk, strike: fillDisk},
		{name: "fill a majority's disks", missing: needDisk, strike: fillMajority, whole: true},
		{name: "stall the disk", missing: needDisk, strike: stall},
		{name: "read-only disk", missing: needTrigger, strike: readOnly},
		{name: "power loss", missing: needDisk, strike: powerLoss},
		{name: "power loss of all", missing: needDisk, strike: powerLossAll, whole: true},
		{name: "failing sync", missing: needTracer, strike: failSync},
		{name: "damaged file", missing: never, strike: damageFile},
		{name: "visit", missing: never, strike: visit, network: true},
		{name: "drain", missing: never, strike: drain, network: true},
		{name: "restore elsewhere", missing: never, strike: restoreElsewhere, network: true},
		{name: "replace the disk", missing: never, strike: replaceDisk, whole: true},
		{name: "exchange the program", missing: needEarlier, strike: exchangeProgram},
		{name: finish, missing: needEarlier, strike: finishUpgrade, whole: true},
	}
}

func find(name string) *nemesis {
	for _, k := range nemeses() {
		if k.name == name {
			return k
		}
	}
	return nil
}

// restart starts a node that has ended. A node that has not may no longer end by itself.
func restart(n *node) error {
	if n.Pid() == 0 {
		return n.Start()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = false
	return nil
}

// gone is the bite of everything that ends processes.
func gone(nodes ...*node) func(*bed) error {
	return func(*bed) error {
		for _, n := range nodes {
			if n.Pid() != 0 {
				return fmt.Errorf("%s still runs", n.ID)
			}
		}
		return nil
	}
}

func killOne(s *strike, n *node) error {
	if n.Pid() == 0 {
		return fmt.Errorf("%s does not run", n.ID)
	}
	s.onHeal(func() error { return restart(n) })
	return n.end(syscall.SIGKILL, 10*time.Second)
}

func kill(s *strike) error {
	s.what, s.bites = s.n.ID, gone(s.n)
	return killOne(s, s.n)
}

func killBusiest(s *strike) error {
	ctx, cancel := s.ctx()
	defer cancel()
	s.n = s.bed.busiest(ctx)
	return kill(s)
}

func stop(s *strike) error {
	s.what, s.bites = s.n.ID, gone(s.n)
	s.onHeal(func() error { return restart(s.n) })
	began := time.Now()
	err := s.n.end(syscall.SIGTERM, 30*time.Second)
	s.what += fmt.Sprintf(" in %s", time.Since(began).Round(10*time.Millisecond))
	return err
}

func killAll(s *strike) error {
	s.what, s.bites = "all nodes", gone(s.bed.nodes...)
	for _, n := range s.bed.nodes {
		if n.Pid() == 0 {
			continue
		}
		n.expectEnd()
		_ = n.Signal(syscall.SIGKILL) // all at once, before waiting for any
	}
	for _, n := range s.bed.nodes {
		if err := killOne(s, n); err != nil && n.Pid() != 0 {
			return err
		}
		s.onHeal(func() error { return restart(n) })
	}
	return nil
}

// rolling stops and starts one node after the other while the clients go on.
func rolling(s *strike) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*readyLimit)
	defer cancel()
	ended := 0
	for _, n := range s.bed.nodes {
		if err := n.end(syscall.SIGTERM, 30*time.Second); err != nil {
			return err
		}
		if n.Pid() == 0 {
			ended++
		}
		if err := n.Start(); err != nil {
			return err
		}
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	s.what = fmt.Sprintf("%d nodes", ended)
	s.bites = func(*bed) error {
		if ended < len(s.bed.nodes) {
			return fmt.Errorf("only %d nodes ended", ended)
		}
		return nil
	}
	return nil
}

// pause stops a process as a virtual machine is stopped: it does not know.
func pause(s *strike) error {
	n := s.n
	began, err := startOf(n.Pid())
	if err != nil {
		return err
	}
	resume, err := s.bed.sup.register(undo{Signal: syscall.SIGCONT, Pid: n.Pid(), Start: began,
		Within: s.limit.Seconds()})
	if err != nil {
		return err
	}
	s.what = n.ID
	s.onHeal(resume)
	s.bites = func(*bed) error {
		if st := n.state(); st != "T" {
			return fmt.Errorf("%s is in state %q", n.ID, st)
		}
		return nil
	}
	return n.Signal(syscall.SIGSTOP)
}

func pauseBusiest(s *strike) error {
	ctx, cancel := s.ctx()
	defer cancel()
	s.n = s.bed.busiest(ctx)
	return pause(s)
}

// moveLeaders hands partitions to one node.
func moveLeaders(s *strike) error {
	ctx, cancel := s.ctx()
	defer cancel()
	leaders, err := s.bed.leaders(ctx)
	if err != nil {
		return err
	}
	moved := 0
	why := errors.New("the node leads everything already")
	for p, leader := range leaders {
		if leader == s.n.ID || moved == 3 {
			continue
		}
		if err := s.bed.transfer(ctx, p, leader, s.n); err != nil {
			why = err
		} else {
			moved++
		}
	}
	s.what = fmt.Sprintf("%d to %s", moved, s.n.ID)
	s.bites = func(*bed) error {
		if moved == 0 {
			return fmt.Errorf("no leadership moved: %w", why)
		}
		return nil
	}
	return nil
}

func needTracer(*bed) string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "strace is not there"
	}
	return ""
}

// failSync makes every write and sync of one process fail with an input-output error for a while; the
// log's writes are synced by themselves.
func failSync(s *strike) error {
	n := s.n
	pid := n.Pid()
	began, err := startOf(pid)
	if err != nil {
		return err
	}
	out := &lockedBuffer{}
	cmd := exec.Command("strace", "-f", "-q", "-p", fmt.Sprint(pid), "-e", "trace=fsync,fdatasync,pwrite64",
		"-e", "inject=fsync,fdatasync,pwrite64:error=EIO")
	cmd.Stderr = out
	n.expectEnd() // a replica whose disk fails may end its process
	if err := cmd.Start(); err != nil {
		return err
	}
	traced, err := startOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	// Interrupted, the tracer lets go and the process runs on.
	detach, err := s.bed.sup.register(undo{Signal: syscall.SIGINT, Pid: cmd.Process.Pid, Start: traced,
		Within: s.limit.Seconds()})
	if err != nil {
		return err
	}
	s.what = n.ID
	s.bites = func(*bed) error {
		if !strings.Contains(out.String(), "INJECTED") {
			return fmt.Errorf("no sync failed: %s", out.String())
		}
		return nil
	}
	s.onHeal(func() error {
		// The memory of the process is in doubt, whatever it made of the fault: it is started anew.
		if start, err := startOf(pid); err == nil && start == began {
			if err := n.end(syscall.SIGKILL, 10*time.Second); err != nil {
				return err
			}
		}
		return restart(n)
	})
	s.onHeal(func() error {
		err := detach()
		<-ended
		return err
	})
	return nil
}
