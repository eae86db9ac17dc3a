package acted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/busbar-mq/busbar/test/namespaces"
)

// Addresses of the play: pods, the way out of their network, DNS, and the Services in their order.
const (
	podNetwork     = "10.244."
	gateway        = "10.244.255.254"
	nameServer     = "10.96.0.10"
	serviceNetwork = "10.96.1."
)

// resolvConf is what the kubelet writes for a pod whose dnsPolicy is ClusterFirst.
const resolvConf = "search " + space + "." + domain + " " + domain + " cluster.local\n" +
	"nameserver " + nameServer + "\noptions ndots:5\n"

// Missing returns why this machine cannot play, nil if it can.
func Missing() error { return namespaces.Missing("chroot", "sh", "env") }

// MoveInside runs this command line again in namespaces of its own, that of processes among them. The kernel ends
// everything in them when this process ends.
func MoveInside() int { return namespaces.Enter(syscall.CLONE_NEWPID, syscall.SIGKILL) }

// Inside reports whether this process has namespaces of its own.
func Inside() bool { return namespaces.Inside() }

// Furnish prepares the namespaces: the network of the pods, and the cluster's DNS for everybody in them.
func Furnish() error {
	if err := namespaces.Furnish(gateway + "/16"); err != nil {
		return err
	}
	if err := namespaces.RunAll("mount -t proc proc /proc", "ip addr add "+nameServer+"/32 dev br0"); err != nil {
		return err
	}
	return resolveBy(resolvConf)
}

// resolveBy puts a resolv.conf in the place of the machine's, in this mount namespace alone.
func resolveBy(text string) error {
	const conf = "/etc/resolv.conf"
	where, err := os.Readlink(conf)
	switch {
	case errors.Is(err, syscall.EINVAL): // no link
		where = conf
	case err != nil:
		return err
	case !filepath.IsAbs(where):
		where = filepath.Join(filepath.Dir(conf), where)
	}
	// A link into /run leads nowhere since a new /run was mounted.
	if strings.HasPrefix(where, "/run/") {
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil {
			return err
		}
		return os.WriteFile(where, []byte(text), 0o644)
	}
	mine := "/run/resolv.conf"
	if err := os.WriteFile(mine, []byte(text), 0o644); err != nil {
		return err
	}
	return namespaces.Run("mount", "--bind", mine, where)
}

// plug gives a pod its network, and the way to the Services.
func (k *Kube) plug(ns, veth, ip string) error {
	if err := namespaces.Plug(ns, veth, ip+"/16"); err != nil {
		return err
	}
	return namespaces.RunAll("ip -n " + ns + " route add default via " + gateway)
}

// addAddress gives the address of a Service to this side of the bridge.
func addAddress(ip string) error { return namespaces.RunAll("ip addr replace " + ip + "/32 dev br0") }
