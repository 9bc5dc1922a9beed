#!/usr/bin/env bash
# Checks the source of every module: formatting, go vet, staticcheck, and that the modules in use are those that were reviewed.
# Says what it checks; anything found is printed and makes it fail.
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

check . formatted
for module in $(modules); do
	check "$module" go vet ./...
	check "$module" "$PWD/bin/tools/staticcheck" ./...
done
for module in . test/controlplane/binaries; do # which lean on no folder of this repository: go mod verify cannot take those
	check "$module" go mod verify
done
if ((status != 0)); then echo "lint: failed"; fi
exit "$status"
