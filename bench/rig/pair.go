package rig

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// Server is one of those that are compared.
type Server struct {
	Name  string
	URL   string // where its clients go
	Token string // what they show
	Pid   int
}

// CPU is the processor time that the server has used so far, user and system.
func (s Server) CPU() (time.Duration, error) {
	cpu, err := CPUOf(s.Pid)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.Name, err)
	}
	return cpu, nil
}

// CPUOf is the processor time that a process has used so far: the sum of utime and stime in
// /proc/<pid>/stat, not in steps of 10 ms but to the microsecond, by its clock
// (clock_getcpuclockid(3)).
func CPUOf(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &used); err != nil {
		return 0, fmt.Errorf("the clock of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// Pair is what is compared: Spillway, and a kube-apiserver that serves the same objects. That
// apiserver is a second one, on the same etcd: what is written goes to the first, so it costs
// either of the two its arrival and no more.
type Pair struct {
	ControlPlane *controlplane.ControlPlane
	Proxy        *Proxy
	Spillway     Server // over TLS; the zero value while there is no proxy
	APIServer    Server
	Cgroup       *Cgroup // where the proxy is started; nil: where we are
}

// StartPair starts a control plane, a second kube-apiserver and a proxy that mirrors resources.
// Stop it.
func StartPair(ctx context.Context, resources string, args ...string) (*Pair, error) {
	p, err := StartAPIServers(ctx)
	if err != nil {
		return nil, err
	}
	err = p.StartProxy(ctx, resources, args...)
	if err == nil {
		err = p.Settle(ctx)
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// StartAPIServers starts a control plane and a second kube-apiserver, and no proxy yet. Stop them.
func StartAPIServers(ctx context.Context) (*Pair, error) {
	cp, err := StartControlPlane(ctx)
	if err != nil {
		return nil, err
	}
	p := &Pair{ControlPlane: cp}
	peer, err := cp.StartPeer(ctx)
	if err != nil {
		p.Stop()
		return nil, err
	}
	p.APIServer = Server{Name: "kube-apiserver", URL: peer.URL(), Token: p.Config().BearerToken, Pid: peer.Pid()}
	return p, nil
}

// StartProxy starts the proxy, in place of the one that runs. It admits every request, and its
// upstream is the first kube-apiserver.
func (p *Pair) StartProxy(ctx context.Context, resources string, args ...string) error {
	return p.StartProxyAs(ctx, p.ControlPlane.Kubeconfig(controlplane.Admin), resources,
		append([]string{"--insecure-allow-all"}, args...)...)
}

// StartProxyAs is StartProxy for a proxy whose upstream and identity are those of a kubeconfig, and
// that leaves authentication and authorization to upstream.
func (p *Pair) StartProxyAs(ctx context.Context, kubeconfig, resources string, args ...string) error {
	p.StopProxy()
	args = append([]string{"--resources=" + resources, "--listen-tls=127.0.0.1:0"}, args...)
	proxy, err := startProxy(ctx, p.Cgroup, kubeconfig, args...)
	if err != nil {
		return err
	}
	p.Proxy = proxy
	p.Spillway = Server{Name: "Spillway", URL: proxy.TLSURL, Token: p.APIServer.Token, Pid: proxy.Pid()}
	return nil
}

// Plain is Spillway by its plain listener. Its clients show nothing: credentials would make their
// requests pass through.
func (p *Pair) Plain() Server {
	return Server{Name: "Spillway, plain", URL: p.Proxy.URL, Pid: p.Proxy.Pid()}
}

// Config is what a writer needs to talk to the first kube-apiserver.
func (p *Pair) Config() *rest.Config { return p.ControlPlane.Config(controlplane.Admin) }

// Stop ends them all.
func (p *Pair) Stop() {
	p.StopProxy()
	p.ControlPlane.Stop()
}

// StopProxy ends the proxy, if one runs.
func (p *Pair) StopProxy() {
	if p.Proxy != nil {
		p.Proxy.Kill()
		p.Proxy, p.Spillway = nil, Server{}
	}
}

// Settle waits until the servers have done what they do after their start, or after something else
// that keeps them busy.
func (p *Pair) Settle(ctx context.Context) error {
	const look, calm = time.Second, 60 * time.Millisecond
	var failed error
	before := time.Duration(0)
	settled := Eventually(ctx, time.Minute, look, func() bool {
		var cpu time.Duration
		for _, s := range []Server{p.Spillway, p.APIServer} {
			if s.Pid == 0 {
				continue
			}
			used, err := s.CPU()
			if err != nil {
				failed = err
				return true
			}
			cpu += used
		}
		spent := cpu - before
		before = cpu
		return spent < calm
	})
	if failed == nil && !settled {
		Say("the servers are still busy after %s", time.Minute)
	}
	return failed
}
