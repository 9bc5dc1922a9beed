#!/usr/bin/env bash
# Checks that the tag of a release, the chart and CHANGELOG.md name one version:
# hack/check-tag.sh v0.1.0. Prints what differs, and fails. hack/release.sh later replaces the
# appVersion in the chart that it packages by the tag, which is also the image's.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=$1 status=0

differs() {
	echo "check-tag: $*" >&2
	status=1
}

# The release candidate v0.1.0-rc.1 is cut from the chapter of 0.1.0.
[[ $tag =~ ^v([0-9]+\.[0-9]+\.[0-9]+)(-[0-9A-Za-z.-]+)?$ ]] || differs "$tag is no tag of a release, such as v0.1.0 or v0.1.0-rc.1"
version=${tag#v}
chart() { sed -n "s/^$1: *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" charts/spillway/Chart.yaml; }
for key in version appVersion; do
	[[ $(chart "$key") == "$version" ]] || differs "charts/spillway/Chart.yaml has $key $(chart "$key"), want $version"
done
./hack/notes.sh "$tag" >/dev/null || status=1
exit "$status"
