#!/usr/bin/env bash
# Builds the proxy twice, in two folders and each time from nothing, and prints both digests: they
# must be the same.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
digests=
for folder in one another/of/a/longer/name; do
	mkdir -p "$work/$folder"
	git ls-files -z --cached --others --exclude-standard -- Makefile go.mod go.sum cmd internal bench/bench.mk test/framework/controlplane/controlplane.mk |
		xargs -0 cp --parents -t "$work/$folder"
	GOCACHE=$work/$folder/cache make --no-print-directory -C "$work/$folder" build VERSION="$VERSION" >&2
	digest=$(sha256sum "$work/$folder/bin/spillway")
	digests+=${digest%% *}$'\n'
done
printf %s "$digests"
[[ $(sort -u <<<"${digests%$'\n'}" | wc -l) == 1 ]] || { echo "reproducible: the two differ" >&2; exit 1; }
