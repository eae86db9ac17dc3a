package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The environment tells a process of this binary what it is.
const (
	superviseVariable = "BUSBAR_CHAOS_SUPERVISE"
	insideVariable    = "BUSBAR_CHAOS_INSIDE" // it has namespaces of its own
)

// The network inside: nodes are .0.N, their proxies .1.N, clients .0.254.
const (
	clientIP    = "10.77.0.254"
	nodeNetwork = "10.77.0."
	proxyPrefix = "10.77.1."
	nowhereMAC  = "02:00:00:00:00:66" // nobody's: what is sent there is lost without a word
)

// commandLimit bounds the small commands of the system that set things up.
const commandLimit = 30 * time.Second

func command(argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func commands(lines ...string) error {
	for _, line := range lines {
		if err := command(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// noNamespaces returns why this process cannot have namespaces of its own, nil if it can.
func noNamespaces() error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	for _, tool := range []string{"ip", "nsenter", "mount", "umount", "timeout", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	// A container's root may be root by name only: try what furnish does.
	cmd := exec.Command("sh", "-c",
		"mount --make-rprivate / && mount -t tmpfs none /run && ip link add br0 type bridge && ip netns add n0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("namespaces: %w: %s", err, out)
	}
	return nil
}

// inside reports whether this process has namespaces of its own.
func inside() bool { return os.Getenv(insideVariable) != "" }

// moveInside runs this command line again in a network and a mount namespace of its own and returns
// its exit code. Both vanish with the last process in them.
func moveInside() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// furnish prepares the namespaces: mounts that nobody outside sees, and a bridge for the nodes.
func furnish() error {
	return commands(
		"mount --make-rprivate /",
		"mount -t tmpfs none /run",
		"ip link set lo up",
		"ip link add br0 type bridge",
		"ip link set br0 up",
		"ip addr add "+clientIP+"/16 dev br0",
	)
}

// plug gives node number i a namespace and an address on the bridge.
func plug(i int, ip string) error {
	ns, veth := netns(i), fmt.Sprintf("veth%d", i)
	return commands(
		"ip netns add "+ns,
		"ip link add "+veth+" type veth peer name eth0 netns "+ns,
		"ip link set "+veth+" master br0 up",
		"ip -n "+ns+" addr add "+ip+"/16 dev eth0",
		"ip -n "+ns+" link set eth0 up",
		"ip -n "+ns+" link set lo up",
		fmt.Sprintf("ip addr add %s%d/32 dev br0", proxyPrefix, i),
	)
}

func netns(i int) string { return fmt.Sprintf("n%d", i) }
