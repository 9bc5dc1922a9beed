# Spillway. `make` alone lists what there is to make. Needs Go, make, git and bash.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
IMAGE   ?= spillway:$(VERSION)
# The commit that spillway_build_info and the image name.
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Where `make build` puts the program.
BINARY  ?= bin/spillway
# How long `make fuzz` spends on each target.
FUZZTIME ?= 20s

##@ Try it

.PHONY: build demo image image-all release reproducible reproducible-release sbom

# The same flags as in the Dockerfile: the same sources give the same program.
build: ## Build the proxy: bin/spillway (BINARY=)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(REVISION)" -o $(BINARY) ./cmd/proxy

# Only a KUBECONFIG given as `make demo KUBECONFIG=…` counts: an exported one must not send the demo
# to a real cluster.
ifeq ($(origin KUBECONFIG),command line)
demo: export DEMO_KUBECONFIG := $(KUBECONFIG)
endif
demo: ## Show Spillway in two acts: at once in front of an API server made for tests, then of etcd and kube-apiserver (ACT=1 or ACT=2: only that act), or of your cluster: make demo KUBECONFIG=file
	@VERSION=$(VERSION) exec ./hack/demo.sh

image: ## Build the container image (IMAGE=name:tag) with docker, podman or buildah
	@IMAGE=$(IMAGE) VERSION=$(VERSION) ./hack/image.sh

image-all: PLATFORMS ?= linux/amd64,linux/arm64
image-all: ## Build it for PLATFORMS (linux/amd64,linux/arm64): bin/spillway.oci.tar
	@IMAGE=$(IMAGE) VERSION=$(VERSION) ./hack/image.sh $(PLATFORMS)

release: tools ## Make a release of VERSION in dist/: binaries, SBOMs, the image (IMAGE_TOOL=none: without), the chart, checksums
	@IMAGE=$(IMAGE) VERSION=$(VERSION) ./hack/release.sh

reproducible: ## Build the proxy twice in different folders, each time from nothing, and compare the digests
	@VERSION=$(VERSION) REVISION=$(REVISION) ./hack/reproducible.sh build

reproducible-release: tools ## Make a release without the image twice, likewise, and compare the checksums
	@VERSION=$(VERSION) REVISION=$(REVISION) ./hack/reproducible.sh release

sbom: build ## Write down what bin/spillway is built from, as CycloneDX: bin/spillway.cdx.json
	cd hack/sbom && go run . -version $(VERSION) $(abspath $(BINARY)) >$(CURDIR)/bin/spillway.cdx.json

##@ Test it

.PHONY: test test-plan test-unit test-suites test-long lint fuzz fuzz-diff conformance conformance-full watchstart watchstart-full watchers simulation simulation-full readyourwrites readyourwrites-full versions versions-short chaos restart restart-full permissions revocation show-frozen controllers bench-go show

test: test-plan tools controlplane ## Run the tests: the proxy's own, then those against a real control plane
	@./hack/test.sh

test-plan:
	@./hack/test.sh plan

test-unit: tools ## Run the proxy's own tests only
	@./hack/test.sh unit

test-suites: tools controlplane ## Run the tests against a real control plane only
	@./hack/test.sh suites

test-long: tools controlplane ## Run the suites whole of which `make test` leaves out what waits for long
	@./hack/test.sh long

lint: tools ## Check formatting, golangci-lint (.golangci.yml), govulncheck, the workflows (actionlint), the chart and the modules' checksums
	@./hack/lint.sh

fuzz: ## Run every fuzz target for FUZZTIME (20s)
	@./hack/fuzz.sh $(FUZZTIME)

# How late the API server answers Spillway's own questions: 700ms, random or never. Empty: at once.
LATE ?=

conformance: controlplane ## Send kube-apiserver and Spillway the same requests, and compare every answer (PROXY_TAGS=portable: of a proxy with a goroutine for each watch, as outside Linux; LATE=700ms: its questions are answered late); bin/conformance/coverage.md tells which rules were shown
	cd test && go test -v -count=1 $(if $(LATE),-short) -timeout=30m ./e2e/conformance -args -late=$(LATE) -report=$(CURDIR)/bin/conformance

conformance-full: controlplane ## The same with every combination of options, and with what takes minutes
	cd test && go test -v -count=1 -timeout=2h ./e2e/conformance -args -full -report=$(CURDIR)/bin/conformance

fuzz-diff: REQUESTS ?= 20000
fuzz-diff: MINUTES ?= 15
fuzz-diff: SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
fuzz-diff: controlplane ## Send both the same random requests (REQUESTS=20000, at most MINUTES=15; LATE=random), and shrink what differs (SEED=); then start the watches among them, at most as long, and write when their heads are there
	cd test && go test -v -count=1 -timeout=0 ./e2e/fuzzdiff $(if $(LATE),-share=0) -late=$(LATE) -requests=$(REQUESTS) -minutes=$(MINUTES) -seed=$(SEED)

watchstart: controlplane ## Start watches, write the moment the head is there, and compare with kube-apiserver's: 60 for each lateness of its answers
	cd test && go test -v -count=1 ./e2e/watchstart -busy=2

watchstart-full: STARTS ?= 10000
watchstart-full: controlplane ## The same STARTS (10000) times for each, on a machine that is kept busy
	cd test && go test -v -count=1 -timeout=0 ./e2e/watchstart -starts=$(STARTS) -workers=16 -busy=4

watchers: RUNS ?= 100
watchers: controlplane ## Run Kubernetes' own conformance specs of watches against Spillway, RUNS (100) times, on a machine that is kept busy (LATE=700ms)
	cd test/e2e/watchers/specs && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o $(CURDIR)/bin/watchers .
	cd test && go test -v -count=1 -timeout=0 ./e2e/watchers -runs=$(RUNS) -late=$(LATE)

simulation: ## Run the simulation with its default, small number of seeds
	cd test && go test -race -count=1 ./e2e/simulation

simulation-full: ## Run the simulation with 200 seeds of 2000 steps each
	cd test && go test -race -count=1 -timeout=4h ./e2e/simulation -seeds=200 -steps=2000

readyourwrites: controlplane ## Write, and at once read through a proxy whose own watch is late (LATE=random: its questions, too): 2000 times
	cd test && go test -v -count=1 ./e2e/readyourwrites -late=$(LATE)

readyourwrites-full: TRIES ?= 100000
readyourwrites-full: controlplane ## The same TRIES (100000) times
	cd test && go test -v -count=1 -timeout=4h ./e2e/readyourwrites -tries=$(TRIES) -late=$(LATE)

versions: controlplane ## Run the suites against kube-apiserver 1.31 to 1.37, and 1.37 with feature gates off, and write docs/versions.md; what has passed (bin/versions) is not run again
	@for minor in $$(awk '!/^#/ { print $$1 }' test/framework/controlplane/binaries/older.txt); do \
		KUBERNETES=$$minor ./test/framework/controlplane/build.sh; done
	cd test && go run ./e2e/versions -out=$(CURDIR)/bin/versions -page=$(CURDIR)/docs/versions.md

versions-short: controlplane ## Run short forms of them against 1.33, which has no watch-lists
	@KUBERNETES=1.33 ./test/framework/controlplane/build.sh
	rm -rf bin/versions-short
	cd test && go run ./e2e/versions -short -only='^1.33$$' -out=$(CURDIR)/bin/versions-short

restart: controlplane ## Kill and restart Spillway, move to another replica, restart kube-apiserver, all under 50 informers: none may list again
	cd test && go test -v -count=1 ./e2e/restart

restart-full: controlplane ## The same under 500 informers
	cd test && go test -v -count=1 -timeout=1h ./e2e/restart -informers=500

chaos: RUNS ?= 300
chaos: SEED ?= 1
chaos: PARALLEL ?= 2
chaos: controlplane ## Break everything around the proxy, and the proxy, in RUNS (300) runs with seeds from SEED (1) on, PARALLEL (2) at a time, and list what was survived
	cd test && go test -v -count=1 -timeout=0 ./e2e/chaos -run '^TestChaos$$' -chaos.runs=$(RUNS) -chaos.first=$(SEED) -chaos.parallel=$(PARALLEL)

permissions: controlplane ## Send kube-apiserver and Spillway the requests of users with all sorts of rights, and compare every answer
	cd test && go test -v -count=1 ./e2e/permissions

revocation: CHANGING ?= 10m
revocation: SEED ?= 1
revocation: controlplane ## Take rights away under watches, at random for CHANGING (10m), and print how long each lasted (SEED=1)
	cd test && go test -v -count=1 -timeout=0 ./e2e/revocation -changing=$(CHANGING) -seed=$(SEED)

show-frozen: FROZEN ?= 5m
show-frozen: controlplane ## Freeze the API server for FROZEN (5m) under watches and informers, and kill it: no client lists again, and old state says its age
	cd test && go test -v -count=1 -timeout=0 ./e2e/outage -frozen=$(FROZEN)

controllers: show-controllers ## Run kube-controller-manager and kube-scheduler with Spillway as their only API server

bench-go: ## Run the Go benchmarks of the proxy's packages
	go test -run='^$$' -bench=. -benchmem ./internal/...

show: $(shell grep -sohE '^show-[a-z-]+' bench/bench.mk) ## Run every program that shows a claim, one after another

-include bench/bench.mk

# The control plane that tests, benchmarks and the demo run against.
include test/framework/controlplane/controlplane.mk
include test/framework/node/node.mk

##@ Keep house

.PHONY: help tools browser languages containers clean

browser: ## Install Debian's Chromium and tmux, where they are missing: tests of the status page look at it in both, and are skipped elsewhere
	@./hack/debian.sh "chromium tmux" chromium fonts-liberation tmux

languages: ## Install Debian's Node.js, JDK, Maven and Python, where they are missing: the tests of clients are skipped elsewhere (Debian's cargo is too old for kube-rs)
	@./hack/debian.sh "node npm" nodejs npm
	@./hack/debian.sh "javac mvn" default-jdk-headless maven
	@./hack/debian.sh "python3" python3 python3-venv

containers: ## Install Debian's buildah, runc and BusyBox, where they are missing: the test of the container image is skipped elsewhere
	@./hack/debian.sh "buildah runc busybox" buildah runc busybox-static

tools: bin/tools/.installed

bin/tools/.installed: bin/tools/helm $(wildcard hack/tools/*.mod hack/tools/*.sum hack/tools/*/*.mod hack/tools/*/*.sum)
	@mkdir -p bin/tools
	cd hack/tools && GOBIN=$(CURDIR)/bin/tools go install tool
	cd hack/tools/golangci && GOBIN=$(CURDIR)/bin/tools go install tool
	cd hack/tools/promtool && GOBIN=$(CURDIR)/bin/tools go install -tags remove_all_sd,enable_kubernetes_sd tool # without the clients of clouds
	@touch $@

# By itself, because `make cluster` needs no other tool. go install does not touch a program that is
# up to date.
bin/tools/helm: $(wildcard hack/tools/helm/go.*)
	@mkdir -p bin/tools
	cd hack/tools/helm && GOBIN=$(CURDIR)/bin/tools go install tool
	@touch $@

clean: ## Remove everything that was built here: bin/ and dist/
	rm -rf bin dist

help: ## Print this
	@echo 'make demo    shows it, make test    tests it. In full:'
	@awk -F ':.*## ' 'FNR == 1 && FILENAME ~ /^bench/ {print "\nShow it"} /^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*## /{printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
