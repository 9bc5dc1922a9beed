#!/usr/bin/env bash
# Makes a target twice, in two folders and each time from nothing, and prints what both gave: they
# must be the same. The target is build, or release without the image.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-build}
case $target in
build) sources=(Makefile '*.mk' go.mod go.sum cmd internal) ;;
release) sources=(.) ;;
*) echo "reproducible: $target: build or release" >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export IMAGE_TOOL=none HELM=$PWD/bin/tools/helm
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
for folder in one another/of/a/longer/name; do
	there=$work/$folder
	mkdir -p "$there"
	git ls-files -z --cached --others --exclude-standard -- "${sources[@]}" | xargs -0 cp -P --parents -t "$there"
	case $target in
	build)
		GOCACHE=$there/cache make --no-print-directory -C "$there" build >&2
		(cd "$there/bin" && sha256sum spillway) >>"$work/${folder%%/*}.sums"
		;;
	release)
		GOCACHE=$there/cache "$there/hack/release.sh" >&2
		cp "$there/dist/SHA256SUMS" "$work/${folder%%/*}.sums"
		;;
	esac
	rm -rf "$there/cache"
done
cat "$work/one.sums"
diff "$work/one.sums" "$work/another.sums" >&2 || { echo "reproducible: the two differ" >&2; exit 1; }
echo "reproducible: the two are the same"
