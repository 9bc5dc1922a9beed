package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
)

// StartControllerManager starts a kube-controller-manager that talks to the server in kubeconfig,
// which may be a proxy, and returns when it is healthy. It runs all default controllers except
// those that would declare hand-made nodes dead. args are added to its command line.
func (cp *ControlPlane) StartControllerManager(ctx context.Context, kubeconfig string, args ...string) (*Process,
	error) {
	return cp.startController(ctx, "kube-controller-manager", kubeconfig, append([]string{
		"--controllers=*,-node-lifecycle-controller,-node-ipam-controller",
		"--root-ca-file=" + cp.users.files.ca,
		"--service-account-private-key-file=" + cp.users.files.serviceAccountKey,
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}, args...))
}

// StartScheduler starts a kube-scheduler that talks to the server in kubeconfig, which may be a
// proxy, and returns when it is healthy. args are added to its command line.
func (cp *ControlPlane) StartScheduler(ctx context.Context, kubeconfig string, args ...string) (*Process, error) {
	return cp.startController(ctx, "kube-scheduler", kubeconfig, append([]string{
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}, args...))
}

func (cp *ControlPlane) startController(ctx context.Context, name, kubeconfig string, args []string) (*Process, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	health := fmt.Sprintf("https://127.0.0.1:%d/healthz", port)
	return cp.launch(ctx, program{
		name: name,
		args: append([]string{
			"--kubeconfig=" + kubeconfig,
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + cp.users.files.serverCert,
			"--tls-private-key-file=" + cp.users.files.serverKey,
			"--cert-dir=" + filepath.Join(cp.dir, name),
		}, args...),
		ready: func(ctx context.Context) error { return cp.get(ctx, health) },
	})
}
