# The load programs: what the proxy must show against a real control plane. Included by the root
# Makefile.

# The programs that compare Spillway with kube-apiserver. Each writes its table into
# bench/RESULTS.md.
MEASURES := fanout selectors idle list sync herd reconnect identities tokenherd

.PHONY: show-onewatch show-stalled show-controllers show-badinput show-drain show-consistent show-flood show-heads show-shapes show-parsers show-identities show-tokenherd show-restart show-hostile soak bench-halfload bench-fanout-wire test-bench bench bench-full $(MEASURES:%=bench-%)

bench: controlplane ## Compare what Spillway and kube-apiserver cost, and write the tables into bench/RESULTS.md (about an hour)
	cd bench && status=0; for program in $(MEASURES); do go run ./$$program -results=RESULTS.md || status=1; done; exit $$status

$(MEASURES:%=bench-%): bench-%: controlplane # one of them
	cd bench && go run ./$* -results=RESULTS.md

bench-fanout-wire: controlplane # as root: what fan-out costs servers that are not charged for what their clients receive
	cd bench && go run ./fanout -wire -results=RESULTS.md -rounds=5

bench-full: controlplane ## The same with more of everything, curves beside bench/RESULTS.md, half an hour at half load and a soak of an hour (about 4 hours)
	cd bench && status=0; \
	go run ./fanout -results=RESULTS.md -rounds=5 -window=10s || status=1; \
	go run ./selectors -results=RESULTS.md -rounds=5 -window=10s || status=1; \
	go run ./idle -results=RESULTS.md || status=1; \
	go run ./list -results=RESULTS.md -rounds=5 -lists=20 || status=1; \
	go run ./sync -results=RESULTS.md -pods=50000 || status=1; \
	go run ./herd -results=RESULTS.md -pods=2000 || status=1; \
	go run ./reconnect -results=RESULTS.md || status=1; \
	go run ./identities -results=RESULTS.md || status=1; \
	go run ./tokenherd -results=RESULTS.md -rounds=5 || status=1; \
	go run ./curves -results=RESULTS.md || status=1; \
	go run ./halfload -results=RESULTS.md || status=1; \
	go run ./soak -duration=1h -results=RESULTS.md -series=../bin/soak.csv || status=1; \
	exit $$status

# How long show-controllers goes on, and soak.
show-controllers: MINUTES ?= 5
soak: MINUTES ?= 1

show-onewatch: controlplane ## 500 watchers and 50 listers cost one upstream watch, and no watcher misses an event
	cd bench && go run ./onewatch

show-stalled: controlplane ## A client that stops reading costs no growing memory, delays no other client and is evicted
	cd bench && go run ./stalled

show-controllers: controlplane ## kube-controller-manager and kube-scheduler know no other API server than the proxy (MINUTES=5)
	cd bench && go run ./controllers -duration=$(MINUTES)m

show-badinput: controlplane ## Every bad input is answered with one clear line
	cd bench && go run ./badinput

show-drain: controlplane ## SIGTERM ends watches one after another, each after a bookmark; a second one at once
	cd bench && go run ./drain

show-consistent: controlplane ## Asking for the most recent state costs no more through the proxy, and informers start soon
	cd bench && go run ./consistent

show-flood: controlplane ## 5,000 half-open connections and 2,000 that send a byte a second do not keep a normal client out
	cd bench && go run ./flood

show-heads: controlplane ## Connections whose heads are a megabyte once they are decoded delay no normal client
	cd bench && go run ./flood -heads

show-shapes: controlplane ## Clients without credentials whose requests or certificates do not end, or cost much, delay no normal client (26 minutes)
	cd bench && go run ./flood -shapes -storm=90s

show-parsers: ## What an HTTP/1.1 server costs by fasthttp and by net/http: small GETs, LISTs, connections
	cd bench && go run ./parsers

show-identities: controlplane ## What reviews cost upstream: 500 identities and 2000 watches for 30 seconds, nothing written into bench/RESULTS.md
	cd bench && go run ./identities -identities=500 -settle=35s -window=30s -report-only

show-tokenherd: controlplane ## 500 clients with 500 tokens reconnect at once, nothing written into bench/RESULTS.md
	cd bench && go run ./tokenherd -clients=500 -rounds=1 -pause=10s

show-restart: controlplane ## 500 informers do not notice a restart of kube-apiserver, and cost it next to nothing after it
	cd bench && go run ./restart

show-hostile: controlplane ## One user's costly selectors delay no other user's watch, and what they weigh is bounded
	cd bench && go run ./hostile

bench-halfload: controlplane ## Half of what one core sustains, for MINUTES=30: every event arrives, and memory does not grow
	cd bench && go run ./halfload $(if $(MINUTES),-duration=$(MINUTES)m,-results=RESULTS.md)

# With HOURS the table and the drawing in bench/RESULTS.md are made again.
soak: controlplane ## Nothing grows, and no client that stays misses an event, while clients come and go and kube-apiserver is killed and frozen now and then (MINUTES=1; HOURS=1: into bench/RESULTS.md)
	cd bench && go run ./soak $(if $(HOURS),-duration=$(HOURS)h -results=RESULTS.md -series=../bin/soak.csv,-duration=$(MINUTES)m)

test-bench: ## Test what the load programs judge by
	cd bench && go vet ./... && go test ./...
