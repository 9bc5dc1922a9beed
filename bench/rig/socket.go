package rig

import (
	"net"
	"net/url"
	"strconv"

	"github.com/prometheus/procfs"
)

// Queue is what the kernel holds for one connection.
type Queue struct {
	Sender   uint64 // bytes that the server has sent and the client's kernel has not acknowledged, or not been offered
	Receiver uint64 // bytes that the client's kernel holds and the client has not read
}

// Queues reads what the kernel holds for the connections of clients to a server, by the client's
// address. Both ends are on this machine.
func Queues(server string, clients []net.Addr) (map[string]Queue, error) {
	port, err := portOf(server)
	if err != nil {
		return nil, err
	}
	table, err := tcpTable()
	if err != nil {
		return nil, err
	}
	queues := map[string]Queue{}
	for _, c := range clients {
		client := uint64(c.(*net.TCPAddr).Port)
		var q Queue
		for _, line := range table {
			switch {
			case line.LocalPort == port && line.RemPort == client:
				q.Sender = line.TxQueue
			case line.LocalPort == client && line.RemPort == port:
				q.Receiver = line.RxQueue
			}
		}
		queues[c.String()] = q
	}
	return queues, nil
}

// tcpTable is /proc/net/tcp.
func tcpTable() (procfs.NetTCP, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	return fs.NetTCP() //nolint:staticcheck // a file serves here as well as the netlink socket that is advised
}

// portOf is the port in a URL.
func portOf(address string) (uint64, error) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(u.Port(), 10, 16)
}

// KernelTCP is how many bytes of memory the kernel uses for all TCP sockets of this machine.
func KernelTCP() (int64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.NetSockstat()
	if err != nil {
		return 0, err
	}
	for _, p := range stat.Protocols {
		if p.Protocol == "TCP" && p.Mem != nil {
			return int64(*p.Mem) * pageSize, nil
		}
	}
	return 0, nil
}

const pageSize = 4096

// Connections counts the TCP connections that a process has to a server on this machine.
func Connections(pid int, server string) (int, error) {
	port, err := portOf(server)
	if err != nil {
		return 0, err
	}
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	targets, err := proc.FileDescriptorTargets()
	if err != nil {
		return 0, err
	}
	open := map[string]bool{}
	for _, t := range targets {
		open[t] = true
	}
	table, err := tcpTable()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, line := range table {
		if line.RemPort == port && open["socket:["+strconv.FormatUint(line.Inode, 10)+"]"] {
			n++
		}
	}
	return n, nil
}
