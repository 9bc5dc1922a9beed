#!/usr/bin/env bash
# Runs every fuzz target of the proxy's module and of test for the time in $1, one after another; it finds them itself. What a target
# has learnt to ask is kept in its package's testdata/fuzz, where go test asks it too; a crasher is left there.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=0
# fuzz runs the targets below the given folders of the module that it is called in.
fuzz() { # time, folders
	while read -r file; do
		for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$file"); do
			echo "== $target in ${file%/*} for $1"
			go test "./${file%/*}" -run '^$' -fuzz "^$target\$" -fuzztime "$1" </dev/null | grep -v '^fuzz: elapsed' || exit 1
			targets=$((targets + 1))
		done
	done < <(grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' "${@:2}" | LC_ALL=C sort)
}

fuzz "$1" cmd internal
cd test
fuzz "$1" .
echo "fuzz: $targets targets, nothing found"
