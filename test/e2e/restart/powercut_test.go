package restart

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// replicas are two servers at one address, and informers at the first.
type replicas struct {
	name      string
	front     *process.Forwarder
	first     *process.Forwarder
	second    string // URL
	informers *informerGroup
}

// newReplicas starts informers over HTTP/2.
func newReplicas(t *testing.T, name, token string, servers [2]string) *replicas {
	t.Helper()
	first := process.NewForwarder(t, servers[0])
	front := process.NewForwarder(t, "https://"+first.Address)
	return &replicas{name: name, front: front, first: first, second: servers[1], informers: newInformerGroup(t,
		&rest.Config{Host: "https://" + front.Address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{
			Insecure: true}}, len(views)*len(forms))}
}

// cut lets the first server vanish without a word, as the power of its node does.
func (r *replicas) cut() {
	r.front.Direct(r.second)
	r.first.Freeze()
}

// A server vanishes without a word: its connections stay open and nothing arrives. client-go sends
// a ping over HTTP/2 after 30 s, gives up 15 s later, and lists. It does so with kube-apiserver
// and with Spillway alike, and all informers end with what upstream has.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("client-go notices after 45 s")
	}
	s := newScene(t)
	peer, err := s.cp.StartPeer(t.Context())
	must(t, err)
	var proxies [2]string
	for i := range proxies {
		proxies[i] = process.StartProxy(t, s.binary, "--kubeconfig="+s.cp.Kubeconfig(controlplane.Admin),
			"--resources=configmaps", "--listen=", "--listen-tls=127.0.0.1:0").TLS
	}
	token := s.cp.Config(controlplane.Admin).BearerToken
	direct := newReplicas(t, "kube-apiserver", token, [2]string{s.cp.URL(), peer.URL()})
	through := newReplicas(t, "Spillway", token, proxies)
	both := []*replicas{direct, through}
	for _, r := range both {
		r.informers.reach(int(s.churn.pulse.Load())+5, time.Now())
		r.informers.sent.states.Store(0)
		r.cut()
	}
	began := time.Now()
	for _, r := range both {
		_, last := r.informers.reach(int(s.churn.pulse.Load())+1, began)
		t.Logf("%s: %d informers at the server that vanished: all are up to date after %v; %d relists", r.name,
			len(r.informers.all), last.Round(time.Millisecond), r.informers.sent.states.Load())
	}
	s.churn.end()
	for _, r := range both {
		r.informers.check(s.direct)
	}
	states, most := through.informers.sent.states.Load(), direct.informers.sent.states.Load()
	if states > max(most, int64(len(through.informers.all))) {
		t.Errorf("%d relists through Spillway, %d of kube-apiserver", states, most)
	}
	if most == 0 {
		t.Error("client-go does not list any more: tighten the power cut of e2e/cluster, too")
	}
}
