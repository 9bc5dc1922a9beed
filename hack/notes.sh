#!/usr/bin/env bash
# Prints what CHANGELOG.md says of a version, as the notes of its release: hack/notes.sh v0.1.0. A
# release candidate, such as v0.1.0-rc.1, has the chapter of its version. A version without a
# chapter is a failure. SOURCE is the repository's address, for links.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=$1
version=${tag#v} version=${version%%-*}

notes=$(awk -v head="## [$version]" '
	index($0, "## [") == 1 { found = index($0, head) == 1; next }
	/^\[[^]]*\]: / { next }
	found' CHANGELOG.md)
[[ $notes == *[![:space:]]* ]] || { echo "notes: CHANGELOG.md has no chapter ## [$version] with text" >&2; exit 1; }
# Links that lead from CHANGELOG.md lead nowhere from the page of a release.
sed -E "s|\]\(([A-Za-z][A-Za-z0-9_./-]*\.md)|](${SOURCE:+$SOURCE/blob/$tag/}\1|g" <<<"$notes"
