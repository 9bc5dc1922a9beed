# The load programs: what the proxy must show against a real control plane. Included by the root Makefile.

.PHONY: show-onewatch show-stalled show-controllers show-badinput show-drain show-consistent soak test-bench

# How long show-controllers goes on, and soak.
show-controllers: MINUTES ?= 5
soak: MINUTES ?= 1

show-onewatch: controlplane ## 500 watchers and 50 listers cost one upstream watch, and nobody misses an event
	cd bench && go run ./onewatch

show-stalled: controlplane ## A client that stops reading costs no growing memory, delays nobody and is evicted
	cd bench && go run ./stalled

show-controllers: controlplane ## kube-controller-manager and kube-scheduler know no other apiserver than the proxy (MINUTES=5)
	cd bench && go run ./controllers -duration=$(MINUTES)m

show-badinput: controlplane ## Every bad input is answered with one clear line
	cd bench && go run ./badinput

show-drain: controlplane ## SIGTERM ends watches one after another, each after a bookmark; a second one at once
	cd bench && go run ./drain

show-consistent: controlplane ## Asking for the most recent state costs no more through the proxy, and informers start soon
	cd bench && go run ./consistent

soak: controlplane ## Clients that come and go in every way leave nothing behind (MINUTES=1)
	cd bench && go run ./soak -duration=$(MINUTES)m

test-bench: ## Test what the load programs judge by
	cd bench && go vet ./... && go test ./...
