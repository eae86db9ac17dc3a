package namespaces

// Furnish prepares the namespaces: mounts that nobody outside sees, and a bridge br0 with these addresses of ours, each
// with its prefix.
func Furnish(addresses ...string) error {
	lines := []string{
		"mount --make-rprivate /",
		"mount -t tmpfs none /run",
		"ip link set lo up",
		"ip link add br0 type bridge",
		"ip link set br0 up",
	}
	for _, a := range addresses {
		lines = append(lines, "ip addr add "+a+" dev br0")
	}
	return RunAll(lines...)
}

// Plug makes a network namespace whose eth0 has the address, and which reaches the bridge by the link veth.
func Plug(ns, veth, address string) error {
	return RunAll(
		"ip netns add "+ns,
		"ip link add "+veth+" type veth peer name eth0 netns "+ns,
		"ip link set "+veth+" master br0 up",
		"ip -n "+ns+" addr add "+address+" dev eth0",
		"ip -n "+ns+" link set eth0 up",
		"ip -n "+ns+" link set lo up",
	)
}
