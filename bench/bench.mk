# The load programs: what the proxy must show against a real control plane. Included by the root Makefile.

.PHONY: show-onewatch show-stalled show-badinput test-bench

show-onewatch: controlplane ## 500 watchers and 50 listers cost one upstream watch, and nobody misses an event
	cd bench && go run ./onewatch

show-stalled: controlplane ## A client that stops reading costs no growing memory, delays nobody and is evicted
	cd bench && go run ./stalled

show-badinput: controlplane ## Every bad input is answered with one clear line
	cd bench && go run ./badinput

test-bench: ## Test what the load programs judge by
	cd bench && go vet ./... && go test ./...
