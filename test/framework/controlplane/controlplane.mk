# The real control plane for tests, benchmarks and the demo; included by the root Makefile.

##@ A real control plane

.PHONY: controlplane test-controlplane clean-controlplane

controlplane: ## Build etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl (once per machine); KUBERNETES=1.33: kube-apiserver of that minor, too, or PROGRAMS="kubectl …"
	@KUBERNETES= ./test/framework/controlplane/build.sh
	@[[ -z "$(KUBERNETES)" ]] || KUBERNETES=$(KUBERNETES) ./test/framework/controlplane/build.sh $(PROGRAMS)

test-controlplane: controlplane ## Test the package that starts and stops the control plane
	cd test && go test -race ./framework/controlplane/...

clean-controlplane: ## Remove the control planes that any clone on this machine has built
	rm -rf bin/controlplane* "$${XDG_CACHE_HOME:-$$HOME/.cache}/spillway/controlplane"
