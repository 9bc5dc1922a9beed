#!/usr/bin/env bash
# Checks the source of every module: formatting, the linters of .golangci.yml, and that the modules
# in use are those that were reviewed. The proxy's own, which is what is shipped, also for known
# vulnerabilities in what it calls (govulncheck); the workflows (actionlint); and the chart. Says
# what it checks; anything found is printed and makes it fail.
set -uo pipefail
cd "$(dirname "$0")/.."
source hack/modules.sh

status=0
check() { # folder, command
	local dir=$1
	shift
	printf 'lint: %s (%s)\n' "${*//$PWD\//}" "$dir"
	(cd "$dir" && "$@") || status=1
}

formatted() {
	local files
	files=$(git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do [[ ! -f $f ]] || echo "$f"; done | xargs gofmt -l)
	[[ -z $files ]] || { printf 'not formatted, run gofmt -w: %s\n' $files; return 1; }
}

# vulnerable needs the database of vulnerabilities, at $GOVULNDB if not at vuln.go.dev. Where that
# cannot be reached nothing is known, which is said and no failure.
vulnerable() {
	local found
	found=$("$OLDPWD/bin/tools/govulncheck" -db "${GOVULNDB:-https://vuln.go.dev}" ./... 2>&1) && return
	if grep -q '^govulncheck: fetching vulnerabilities:' <<<"$found"; then
		echo "lint: SKIPPED govulncheck, because its database cannot be reached: ${found#govulncheck: fetching vulnerabilities: }"
		return
	fi
	echo "$found"
	return 1
}

check . formatted
for module in $(modules); do
	check "$module" "$PWD/bin/tools/golangci-lint" run ./...
done
check . vulnerable
check . "$PWD/bin/tools/actionlint" -shellcheck= -pyflakes=
check . "$PWD/bin/tools/helm" lint --quiet --strict charts/spillway
for module in . test/framework/controlplane/binaries test/framework/node/binaries test/e2e/watchers/specs; do # which lean on no folder of this repository: go mod verify cannot take those
	check "$module" go mod verify
done
if ((status != 0)); then echo "lint: failed"; fi
exit "$status"
