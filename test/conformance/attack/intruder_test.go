package attack

import (
	"fmt"
	"io"
	"log"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/busbar-mq/busbar/test/cluster"
)

// intruders are members of the same library as the nodes', with a wrong key, without one, or with another name. None may join.
func (a *attack) intruders(n *cluster.Node) {
	a.Helper()
	other := []byte("some other key with 32 bytes in.")
	for name, tc := range map[string]struct {
		key   []byte
		label string
	}{
		"another key": {other, "busbar"}, "no key": {nil, "busbar"},
		"another name": {ground.key, "other"}, "no name": {ground.key, ""},
	} {
		port, err := cluster.FreePorts(1)
		a.must("port", err)
		conf := memberlist.DefaultLANConfig()
		conf.Name, conf.Label, conf.SecretKey = fmt.Sprint("intruder-", port[0]), tc.label, tc.key
		conf.BindAddr, conf.AdvertiseAddr, conf.BindPort, conf.AdvertisePort = "127.0.0.1", "127.0.0.1", port[0], port[0]
		conf.TCPTimeout = 5 * time.Second
		conf.Logger = log.New(io.Discard, "", 0)
		list, err := memberlist.Create(conf)
		a.must("create an intruder", err)
		met, err := list.Join([]string{n.Gossip})
		if met != 0 || err == nil || list.NumMembers() != 1 {
			a.Errorf("%s: an intruder with %s met %d nodes and knows %d members, %v", n.ID, name, met, list.NumMembers(), err)
		}
		a.sockets.Add(1)
		a.must("shut the intruder down", list.Shutdown())
	}
}
