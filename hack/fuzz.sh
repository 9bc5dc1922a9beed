#!/usr/bin/env bash
# Runs every fuzz target of the proxy's module and of test for the time in $1, one after another; it
# finds them itself. A target's corpus is in its package's testdata/fuzz, where go test runs it too;
# a crasher is left there.
set -euo pipefail
cd "$(dirname "$0")/.."

output=$(mktemp)
trap 'rm -f "$output"' EXIT

# deadline says whether the last failure is only go's own clock: before 1.27 the coordinator may
# take the end of -fuzztime for an error (go.dev/issue/75804). What a target finds is reported in
# other words, and always with an input or a reason.
deadline() {
	! grep -qE 'Failing input|hung or terminated|panic:|DATA RACE' "$output" &&
		grep -A1 '^--- FAIL: ' "$output" | grep -qx '    context deadline exceeded'
}

targets=0
# fuzz runs the targets below the given folders of the module that it is called in.
fuzz() { # time, folders
	while read -r file; do
		for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$file"); do
			echo "== $target in ${file%/*} for $1"
			go test "./${file%/*}" -run '^$' -fuzz "^$target\$" -fuzztime "$1" </dev/null | tee "$output" | grep -v '^fuzz: elapsed' || deadline || exit 1
			targets=$((targets + 1))
		done
	done < <(grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' "${@:2}" | LC_ALL=C sort)
}

fuzz "$1" cmd internal
cd test
fuzz "$1" .
echo "fuzz: $targets targets, nothing found"
