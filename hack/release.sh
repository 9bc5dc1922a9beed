#!/usr/bin/env bash
# Makes what a release of $VERSION consists of, in dist/: a binary and its bill of materials for
# each platform, the OCI image archive, the packaged chart, and SHA256SUMS of them all. The same
# commit gives the same files, byte for byte; the image, if its bases are named by digest (GOLANG
# and BASE in the Dockerfile).
#
# IMAGE_TOOL=none leaves out the image, where there is neither docker nor podman nor buildah.
# PLATFORMS are other platforms of the binaries; empty, there are none. HELM is another helm.
set -euo pipefail
cd "$(dirname "$0")/.."
platforms=${PLATFORMS-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
helm=${HELM:-bin/tools/helm}
dist=$PWD/dist

fail() {
	echo "release: $*" >&2
	exit 1
}

[[ $VERSION != *-dirty && $VERSION != unknown ]] || fail "VERSION=$VERSION names no commit: commit the changes, or name a version"
tar --version 2>/dev/null | grep -q GNU || fail "this needs GNU tar, as Linux has it"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# The version of Go that the image is built with, whichever is installed here, and none of this
# machine's settings that change a program.
go=$(sed -n 's/^ARG GOLANG=.*golang:\([0-9.]*\).*/\1/p' Dockerfile)
[[ -n $go ]] || fail "the Dockerfile names no version of Go"
export GOTOOLCHAIN=go$go GOFLAGS=-mod=readonly GOAMD64=v1 GOARM64=v8.0 GOWORK=off LC_ALL=C

# packed makes a tar archive of a folder that depends on nothing but names and contents.
packed() {
	tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w,a+rX --format=ustar \
		-C "$1" -cf - "${@:2}"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$dist"
mkdir -p "$dist"

for platform in $platforms; do
	name=spillway_${VERSION}_${platform%/*}_${platform#*/}
	echo "release: $name"
	GOOS=${platform%/*} GOARCH=${platform#*/} make --no-print-directory build VERSION="$VERSION" BINARY="$dist/$name" >/dev/null
	(cd hack/sbom && go run . -version "$VERSION" "$dist/$name") >"$dist/$name.cdx.json"
done

# A chart's version is semantic; that of a commit without a tag is none.
semantic=${VERSION#v}
[[ $semantic =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || semantic=0.0.0-g$VERSION
echo "release: spillway-$semantic.tgz"
# Artifact Hub reads the image's tag, and whether this is a release, from annotations.
cp -r charts/spillway "$work/spillway"
prerelease=false
[[ $semantic != *-* ]] || prerelease=true
sed -i -E "s|^( *image: .*:)[^:]*$|\1$VERSION|; s|(artifacthub.io/prerelease:).*|\1 \"$prerelease\"|" "$work/spillway/Chart.yaml"
"$helm" package --version "$semantic" --app-version "$VERSION" --destination "$work" "$work/spillway" >/dev/null
mkdir "$work/chart"
tar -xzf "$work/spillway-$semantic.tgz" -C "$work/chart"
packed "$work/chart" spillway | gzip -n9 >"$dist/spillway-$semantic.tgz"

if [[ ${IMAGE_TOOL:-} == none ]]; then
	echo "release: IMAGE_TOOL=none: without the image"
else
	make --no-print-directory image-all VERSION="$VERSION" IMAGE="$IMAGE" PLATFORMS=linux/amd64,linux/arm64
	mkdir "$work/image"
	tar -xf bin/spillway.oci.tar -C "$work/image"
	packed "$work/image" . >"$dist/spillway_${VERSION}_oci.tar"
fi

(cd "$dist" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && cat SHA256SUMS)
# helm push writes the time of the chart's file into the manifest.
find "$dist" -type f -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
