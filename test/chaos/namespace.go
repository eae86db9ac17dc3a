package main

import (
	"fmt"
	"syscall"

	"github.com/busbar-mq/busbar/test/namespaces"
)

// superviseVariable in the environment makes a process of this binary the supervisor.
const superviseVariable = "BUSBAR_CHAOS_SUPERVISE"

// The network inside: nodes are .0.N, their proxies .1.N, clients .0.254.
const (
	clientIP    = "10.77.0.254"
	nodeNetwork = "10.77.0."
	proxyPrefix = "10.77.1."
	nowhereMAC  = "02:00:00:00:00:66" // nobody's: what is sent there is lost without a word
)

// noNamespaces returns why this process cannot have namespaces of its own, nil if it can.
func noNamespaces() error { return namespaces.Missing("timeout", "bash") }

// moveInside runs this command line again in namespaces of its own. The runner's end is a SIGTERM for it: it has faults
// to take back.
func moveInside() int { return namespaces.Enter(0, syscall.SIGTERM) }

// furnish prepares the namespaces.
func furnish() error { return namespaces.Furnish(clientIP + "/16") }

// plug gives node number i a namespace and an address on the bridge, and its proxy an address.
func plug(i int, ip string) error {
	if err := namespaces.Plug(netns(i), fmt.Sprintf("veth%d", i), ip+"/16"); err != nil {
		return err
	}
	return namespaces.RunAll(fmt.Sprintf("ip addr add %s%d/32 dev br0", proxyPrefix, i))
}

func netns(i int) string { return fmt.Sprintf("n%d", i) }
