package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// ports are the loopback ports of one control plane.
type ports struct {
	etcd, etcdPeer, second, secondPeer, apiserver int
}

func choosePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcd, &p.etcdPeer, &p.second, &p.secondPeer, &p.apiserver} {
		var err error
		if *port, err = FreePort(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

// given are the ports that were returned before, each with what keeps other processes from
// returning it: the servers that they are for may be down at the moment.
var given sync.Map

// FreePort returns a loopback port without a listener, for a server that is to use it again after a
// restart; none is returned twice, nor by two processes that live at the same time. It stays below
// 32768, where Linux takes the local ports of outgoing connections from: a port from ":0" could be
// one of those by the time a stopped API server wants it back.
func FreePort() (int, error) {
	const low, high = 10000, 32768
	for range 100 {
		port := low + rand.IntN(high-low)
		// A name of its own without a file, which ends with the process, and which is seen just where the
		// port is.
		claim, err := net.Listen("unix", fmt.Sprintf("@spillway-port-%d", port))
		if err != nil {
			continue
		}
		given.Store(port, claim)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("cannot find a free loopback port between 10000 and 32767")
}
