# The load programs: what the proxy must show against a real control plane. Included by the root Makefile.

.PHONY: show-onewatch test-bench

show-onewatch: controlplane ## 500 watchers and 50 listers cost one upstream watch, and nobody misses an event
	cd bench && go run ./onewatch

test-bench: ## Test what the load programs judge by
	cd bench && go vet ./... && go test ./...
