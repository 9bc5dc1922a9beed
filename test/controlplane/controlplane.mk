# The real control plane for tests, benchmarks and the demo; included by the root Makefile.

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl into bin/controlplane (once)
	@./test/controlplane/build.sh
