#!/usr/bin/env bash
# Builds the container image $IMAGE: of this machine's kind, or, for the platforms named in $1
# (linux/amd64,linux/arm64), as an OCI archive of them all in bin/spillway.oci.tar. Takes what there
# is of docker, podman and buildah, or IMAGE_TOOL. IMAGE_FLAGS are more flags of its build. What the
# labels are VERSION, REVISION, SOURCE (the repository's address) and SOURCE_DATE_EPOCH is the
# commit's unless it is given.
set -euo pipefail
cd "$(dirname "$0")/.."
platforms=${1:-} archive=bin/spillway.oci.tar

fail() {
	echo "image: $*" >&2
	exit 1
}

# found is the first tool that works: docker is often there without its engine.
found() {
	if docker info >/dev/null 2>&1; then
		echo docker
	else
		basename "$(command -v podman || command -v buildah)"
	fi
}

# commit prints what git knows, or nothing outside a checkout.
commit() { git "$@" 2>/dev/null || :; }

tool=${IMAGE_TOOL:-$(found)}
case $tool in
docker | podman | buildah) command -v "$tool" >/dev/null || fail "IMAGE_TOOL=$tool is not in PATH" ;;
'') fail "neither a docker engine nor podman nor buildah is here: install one of them (on Debian: apt-get install buildah)" ;;
*) fail "IMAGE_TOOL=$tool is not known: docker, podman or buildah" ;;
esac

epoch=${SOURCE_DATE_EPOCH:-$(commit log -1 --format=%ct)}
epoch=${epoch:-0}
[[ $epoch =~ ^[0-9]+$ ]] || fail "SOURCE_DATE_EPOCH=$epoch is not a number of seconds"
# A remote that only this machine knows, or with a password in it, is no address to publish.
source=${SOURCE-$(commit remote get-url origin | grep -E '^https://[^@]+$' || :)}
revision=${REVISION:-$(commit rev-parse HEAD)}
flags=(
	--build-arg "VERSION=${VERSION:-unknown}"
	--build-arg "REVISION=${revision:-unknown}"
	--build-arg "SOURCE=$source"
	--build-arg "CREATED=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)"
)
read -ra more <<<"${IMAGE_FLAGS:-}"
flags+=("${more[@]}")

# buildah 1.28 does not know BUILDPLATFORM by itself, and would look for a Go of the other kind.
if [[ $tool != docker ]]; then
	arch=$(uname -m)
	case $arch in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; esac
	flags+=(--build-arg "BUILDPLATFORM=linux/$arch")
fi

[[ -z $platforms ]] || mkdir -p "${archive%/*}"
case $tool:$platforms in
docker:)
	docker build "${flags[@]}" --build-arg "SOURCE_DATE_EPOCH=$epoch" --tag "$IMAGE" .
	;;
docker:*)
	docker buildx version >/dev/null 2>&1 || fail "docker needs its plugin buildx for more than one platform; or set IMAGE_TOOL=podman or buildah"
	docker buildx build "${flags[@]}" --build-arg "SOURCE_DATE_EPOCH=$epoch" --platform "$platforms" \
		--output "type=oci,dest=$archive,name=$IMAGE,rewrite-timestamp=true" .
	;;
*:)
	"$tool" build "${flags[@]}" --timestamp "$epoch" --tag "$IMAGE" .
	;;
*)
	{ "$tool" manifest rm "$IMAGE" || "$tool" rmi "$IMAGE"; } >/dev/null 2>&1 || : # what was built before would stay in it, or be in its way
	# One after another: built together, they are listed in the order in which they end.
	for platform in ${platforms//,/ }; do
		"$tool" build "${flags[@]}" --timestamp "$epoch" --platform "$platform" --manifest "$IMAGE" .
	done
	rm -f "$archive"
	"$tool" manifest push --all "$IMAGE" "oci-archive:$archive"
	;;
esac
[[ -z $platforms ]] || echo "image: $platforms are in $archive"
