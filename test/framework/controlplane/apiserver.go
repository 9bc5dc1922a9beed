package controlplane

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// apiserverGrace is how long kube-apiserver may take to end its requests before StopAPIServer kills
// it.
const apiserverGrace = 20 * time.Second

// StartAPIServer starts kube-apiserver on its port and returns when /readyz says ok. It does
// nothing while it runs.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	cp.apiserver.starting.Lock()
	defer cp.apiserver.starting.Unlock()
	if running(cp.APIServer()) {
		return nil
	}
	p, err := cp.launch(ctx, program{
		name:  "kube-apiserver",
		path:  cp.path,
		args:  append(cp.apiserverGates(), cp.apiserverArgs(cp.ports.apiserver, cp.etcdRoute)...),
		ready: func(ctx context.Context) error { return cp.get(ctx, cp.URL()+"/readyz") },
	})
	if err == nil {
		cp.apiserver.current.Store(p)
	}
	return err
}

// StopAPIServer ends kube-apiserver the way an upgrade does: watches are cut, other requests may
// finish.
func (cp *ControlPlane) StopAPIServer() { cp.APIServer().Stop(apiserverGrace) }

// RestartAPIServer stops and starts kube-apiserver on the same port. Its watch caches begin again:
// a watch from a resourceVersion before the restart is answered 410.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	cp.StopAPIServer()
	return cp.StartAPIServer(ctx)
}

// FreezeAPIServer makes kube-apiserver deaf and mute without closing a connection, until
// ThawAPIServer.
func (cp *ControlPlane) FreezeAPIServer() error { return cp.APIServer().Freeze() }

// ThawAPIServer undoes FreezeAPIServer.
func (cp *ControlPlane) ThawAPIServer() error { return cp.APIServer().Thaw() }

// APIServer is the current run of kube-apiserver, or the last one when it is stopped. Its Kill is a
// crash.
func (cp *ControlPlane) APIServer() *Process { return cp.apiserver.current.Load() }

// apiserverArgs is the command line of a kube-apiserver on a port, which reaches etcd at an
// address.
func (cp *ControlPlane) apiserverArgs(port int, etcdRoute string) []string {
	files := cp.users.files
	args := []string{
		"--etcd-servers=http://" + etcdRoute,
		fmt.Sprintf("--secure-port=%d", port),
		"--bind-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // the others refuse a loopback address
		"--tls-cert-file=" + files.serverCert,
		"--tls-private-key-file=" + files.serverKey,
		"--client-ca-file=" + files.ca,
		"--token-auth-file=" + files.tokens,
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + files.serviceAccountKey,
		"--service-account-signing-key-file=" + files.serviceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
	}
	if !cp.options.ServiceAccountAdmission {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if sizes := cp.options.WatchCacheSizes; len(sizes) > 0 {
		var list []string
		for _, resource := range slices.Sorted(maps.Keys(sizes)) {
			list = append(list, fmt.Sprintf("%s#%d", resource, sizes[resource]))
		}
		args = append(args, "--watch-cache-sizes="+strings.Join(list, ","))
	}
	if apart := cp.options.SecondEtcd; len(apart) > 0 {
		var list []string
		for _, resource := range apart {
			list = append(list, fmt.Sprintf("%s#http://127.0.0.1:%d", resource, cp.ports.second))
		}
		args = append(args, "--etcd-servers-overrides="+strings.Join(list, ","))
	}
	return append(args, cp.options.APIServerArgs...)
}

// apiserverGates is the part of the command line that sets feature gates, which kube-apiserver of
// another minor need not know.
func (cp *ControlPlane) apiserverGates() []string {
	gates := cp.options.FeatureGates
	if len(gates) == 0 {
		return nil
	}
	var list []string
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		list = append(list, fmt.Sprintf("%s=%t", gate, gates[gate]))
	}
	return []string{"--feature-gates=" + strings.Join(list, ",")}
}

// get succeeds when url answers 200 to an admin.
func (cp *ControlPlane) get(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", url, err)
	}
	r.Header.Set("Authorization", "Bearer "+cp.users.tokens[Admin])
	response, err := cp.users.client.Do(r)
	if err != nil {
		return err // names method and URL already
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("cannot read the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return nil
}

// running reports whether p has been started and not ended.
func running(p *Process) bool {
	if p == nil {
		return false
	}
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}
