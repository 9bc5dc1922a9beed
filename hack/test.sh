#!/usr/bin/env bash
# Runs the tests of every module of this repository, the proxy's own first, and sums them up. The suites in test/ start real
# control planes: they run one after another, and always, since Go cannot tell that a server has changed.
# The tests' events (go test -json) and the sum are left in bin/test/ for other programs.
set -uo pipefail
cd "$(dirname "$0")/.."
source hack/modules.sh
results=bin/test
rm -rf "$results"
mkdir -p "$results"

race=(-race)
if ! command -v "$(go env CC)" >/dev/null || [[ ${CGO_ENABLED:-} == 0 ]]; then
	race=()
	echo "test: no C compiler, so without the race detector"
fi

status=0
run() { # module, flags of go test
	local module=$1 started=$SECONDS name=${1//[.\/]/-}
	shift
	printf '\n== %s: go test%s ./...\n' "$(sed -n 's/^module //p' "$module/go.mod")" "${*:+ $*}"
	(cd "$module" && "$OLDPWD/bin/tools/gotestsum" --format standard-quiet --jsonfile "$OLDPWD/$results/$name.json" -- "$@" ./...) ||
		status=1
	echo "   $((SECONDS - started)) s"
}

for module in $(modules); do
	case $module in
	.) run . "${race[@]}" ;;
	test) run test "${race[@]}" -count=1 -p=1 ;;
	*) run "$module" ;; # programs: they are built, and what they judge by is tested
	esac
done

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
