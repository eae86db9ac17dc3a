package cluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that tests choose lie below those that a kernel gives to outgoing connections (32768 and up on Linux). Of
// these, one that was free a moment ago may be somebody's by the time a node listens.
const firstPort, lastPort = 16000, 32000

var given struct {
	sync.Mutex
	ports map[int]bool // of this process, so that no port is given twice
}

// FreePorts returns ports of loopback that nobody uses, neither for streams nor for packets.
func FreePorts(count int) ([]int, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	var ports []int
	for range lastPort - firstPort {
		if len(ports) == count {
			return ports, nil
		}
		p := firstPort + rand.IntN(lastPort-firstPort)
		if !given.ports[p] && free(p) {
			given.ports[p] = true
			ports = append(ports, p)
		}
	}
	return nil, errors.New("no free ports")
}

func free(port int) bool {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
