# A real cluster; included by the root Makefile.

##@ A real cluster

.PHONY: cluster cluster-begin cluster-tools cluster-build test-cluster clean-cluster

cluster: NODES ?= 1
cluster cluster-build test-cluster: export KUBERNETES := $(KUBERNETES)
cluster: cluster-begin build cluster-build bin/tools/helm ## Run a real cluster of NODES (1), as root, whose nodes have an image of bin/spillway, and print how to install it; KUBERNETES=1.33: of that minor; IMAGES=: archives of more images; Ctrl-C ends it
	@cd test && go build -o ../bin/cluster ./framework/node/cmd/cluster
	@exec bin/cluster -nodes=$(NODES) -spillway=$(BINARY) $(IMAGES)

cluster-begin:
	@echo "cluster: about 3 minutes until it runs, and much longer for the first build on a machine" >&2

cluster-build: controlplane ## Build kubelet, kube-proxy, containerd, ctr and a pause program (once per machine)
	@./test/framework/node/build.sh
	@[[ -z "$(KUBERNETES)" ]] || ./test/framework/node/older.sh

cluster-tools: ## Install Debian's runc, nftables and CNI plugins, where they are missing: the tests on a real node are skipped elsewhere
	@./hack/debian.sh "runc nft ip nsenter /usr/lib/cni/ptp" runc nftables iproute2 util-linux containernetworking-plugins

test-cluster: cluster-build tools ## Run what `make cluster` prints; install the chart on two real nodes, replace its pods and cut the power of a node under 20 informers, run kubectl's sessions with a pod, enforce its NetworkPolicy, scrape it, and give sidecars to pods of all sorts
	cd test && go test -v -count=1 -timeout=1h ./framework/node/... ./e2e/cluster

clean-cluster: ## Remove what any clone on this machine has built of a node
	rm -rf bin/node "$${XDG_CACHE_HOME:-$$HOME/.cache}/spillway/node"
