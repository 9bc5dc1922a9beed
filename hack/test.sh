#!/usr/bin/env bash
# Runs the tests of every module of this repository, the proxy's own first, and sums them up. The
# suites in test/ start real control planes: they always run, because Go's test cache does not know
# that a server has changed, and four at a time, because mostly they wait. `test.sh unit` runs the
# proxy's own tests only, `test.sh suites` the others. `test.sh long` runs what -short leaves out of
# the suites instead: they, whole; and beside them conformance of a proxy whose watches are
# goroutines. `test.sh plan` says what `make test` is going to do. The tests' events (go test -json)
# and the sum are left in bin/test/, or bin/test-long/ and so on, for other programs.
set -uo pipefail
cd "$(dirname "$0")/.."
source hack/modules.sh
source hack/progress.sh

if [[ ${1:-} == plan ]]; then
	tools="up to date" servers="up to date"
	[[ -e bin/tools/.installed ]] || tools="a few minutes, once per clone"
	[[ -x ${CONTROLPLANE_DIR:-bin/controlplane}/kube-scheduler ]] ||
		servers="about 10 minutes on 2 processors, once per machine, unless another clone has built it"
	cat <<-END
		== make test: 4 steps
		1. build the tools of the tests from source: $tools
		2. build etcd and Kubernetes from source: $servers
		3. the proxy's own tests (make test-unit): about 5 minutes, once the compiler's cache is warm
		4. the suites against a real control plane (make test-suites): about 16 minutes
	END
	exit
fi
results=bin/test${1:+-$1}
rm -rf "$results"
mkdir -p "$results"

# The suites of the module test in whose own process the proxy's code runs; before all others the
# proxy is a process of its own, and a race detector would watch over the clients.
within="./e2e/authentication ./e2e/flowcontrol ./e2e/negotiation ./e2e/simulation"
# Those that -short cuts, the longest first.
cut="./e2e/slowlink ./e2e/chaos ./e2e/conformance ./e2e/fuzzdiff"

race=(-race)
if ! command -v "$(go env CC)" >/dev/null || [[ ${CGO_ENABLED:-} == 0 ]]; then
	race=()
	echo "test: no C compiler, so without the race detector"
fi

status=0
runs=0
run() { # module, flags of go test and packages
	local module=$1 started=$SECONDS
	shift
	runs=$((runs + 1))
	printf '\n== %s: go test %s\n' "$(sed -n 's/^module //p' "$module/go.mod")" "$*"
	(cd "$module" && with_progress "these tests" \
		"$OLDPWD/bin/tools/gotestsum" --format standard-quiet --jsonfile "$OLDPWD/$results/$runs.json" -- "$@")
	local failed=$?
	((SECONDS - started < 5)) || echo "   $(duration "$SECONDS") since the beginning"
	((failed == 0)) || status=1
	return "$failed"
}

# others are the packages of the module test that are not within.
others() {
	(cd test && go list ./...) | sed 's|^[^/]*/test|.|' | grep -vxF "${within// /$'\n'}"
}

if [[ ${1:-} == long ]]; then
	PROXY_TAGS=portable run test -short -count=1 ./e2e/conformance >"$results/beside" &
	runs=$((runs + 1)) # its own
	run test -count=1 -p=3 -timeout=30m $cut
	wait "$!" || status=1
	cat "$results/beside"
else
	for module in $(modules); do
		case ${1:-},$module in
		unit,. | suites,[^.]* | ,*) ;;
		*) continue ;;
		esac
		case $module in
		.)
			run . "${race[@]}" ./...
			# What the detector makes otherwise: allocations, memory, and how upstream's connections are
			# read.
			run . -run 'Allocates|AreSmall' ./internal/h2 ./internal/watch
			run . ./internal/rawio
			;;
		test)
			run test "${race[@]}" -count=1 -p=1 $within
			PROXY_TAGS=portable run test "${race[@]}" -count=1 ./e2e/simulation # of a proxy whose watches are goroutines
			run test -short -count=1 -p=4 -timeout=30m $(others)
			# of a proxy whose questions are answered late, out of order or never
			run test -short -count=1 ./e2e/readyourwrites -late=random -tries=500
			run test -short -count=1 ./e2e/fuzzdiff -late=random -requests=1000 -share=0
			;;
		*) run "$module" ./... ;; # programs: they are built, and what they judge by is tested
		esac
	done
fi

# count prints how many events of a kind there are: of tests (and subtests), or of whole packages.
count() { # action, tests|packages
	local of='"Test":'
	[[ $2 == tests ]] || of='^{"Time":"[^"]*","Action":"[a-z]*","Package":"[^"]*","Elapsed":'
	cat "$results"/*.json 2>/dev/null | grep "\"Action\":\"$1\"" | grep -c "$of"
}
passed=$(count pass tests) failed=$(count fail tests) skipped=$(count skip tests)
packages=$(count pass packages) broken=$(count fail packages)
if ((status != 0 && failed == 0)); then failed=$((broken > 0 ? broken : 1)); fi # what did not build has no tests to fail
echo "passed=$passed failed=$failed" >"$results/sum"
printf '\n== %d tests passed, %d failed, %d skipped; %d packages passed, %d failed; %d s\n' \
	"$passed" "$failed" "$skipped" "$packages" "$broken" "$SECONDS"
exit "$status"
