package controlplane

import (
	"context"
	"fmt"
)

// Peer is one more kube-apiserver on the same etcd, with the same users and certificates: what a
// cluster with several of them has behind its load balancer. Its watch caches are its own, and as
// old as its own traffic lets them be.
type Peer struct {
	*Process
	url string
}

// URL is where the peer listens, https://127.0.0.1:port.
func (p *Peer) URL() string { return p.url }

// StartPeer starts another kube-apiserver, on a port of its own, and returns when /readyz says ok.
// It ends with the control plane, or when it is killed.
func (cp *ControlPlane) StartPeer(ctx context.Context) (*Peer, error) {
	return cp.startPeer(ctx, cp.path, cp.apiserverGates(), cp.etcdRoute)
}

// StartPeerOf starts a peer of another minor of Kubernetes, as while a cluster is upgraded; the
// empty minor is the newest. Its feature gates are the defaults.
func (cp *ControlPlane) StartPeerOf(ctx context.Context, minor string) (*Peer, error) {
	path, err := apiserverOf(cp.bin, minor)
	if err != nil {
		return nil, err
	}
	return cp.startPeer(ctx, path, nil, cp.etcdRoute)
}

// StartPeerBehind starts a peer that reaches etcd at another address, host:port, than the first
// API server does.
func (cp *ControlPlane) StartPeerBehind(ctx context.Context, etcdRoute string) (*Peer, error) {
	return cp.startPeer(ctx, cp.path, cp.apiserverGates(), etcdRoute)
}

func (cp *ControlPlane) startPeer(ctx context.Context, path string, gates []string, etcdRoute string) (*Peer, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	p, err := cp.launch(ctx, program{
		name:  "kube-apiserver",
		path:  path,
		log:   fmt.Sprintf("kube-apiserver-%d", port),
		args:  append(gates, cp.apiserverArgs(port, etcdRoute)...),
		ready: func(ctx context.Context) error { return cp.get(ctx, url+"/readyz") },
	})
	if err != nil {
		return nil, err
	}
	return &Peer{p, url}, nil
}
