# The real control plane for tests, benchmarks and the demo; included by the root Makefile.

.PHONY: controlplane test-controlplane

controlplane: ## Build etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl into bin/controlplane (once)
	@./test/controlplane/build.sh

test-controlplane: controlplane ## Test the package that starts and stops the control plane
	cd test && go test -race ./controlplane/...
