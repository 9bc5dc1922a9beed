#!/usr/bin/env bash
# Runs every fuzz target for the time in $1, one after another. A crasher is left in the package's testdata.
set -euo pipefail
cd "$(dirname "$0")/.."

# fuzz runs the targets below the given folders of the module that it is called in.
fuzz() {
	grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' "${@:2}" | LC_ALL=C sort | while read -r file; do
		for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$file"); do
			echo "== $target in ${file%/*} for $1"
			go test "./${file%/*}" -run '^$' -fuzz "^$target\$" -fuzztime "$1" </dev/null
		done
	done
}

fuzz "$1" cmd internal
cd test
fuzz "$1" negotiation
