#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl into bin/controlplane/ of this repository,
# or into $SPILLWAY_CONTROLPLANE_DIR (which lets several clones share one build). Needs Go and a module proxy, nothing else.
# A program whose stamp (go.mod, go.sum, the Go version, this script) is unchanged is not built again, so an interrupted
# build goes on where it stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${SPILLWAY_CONTROLPLANE_DIR:-$here/../../bin/controlplane}
heartbeat=20 # seconds between signs of life of a long build

programs=(
	spillway/test/controlplane/binaries/etcd
	k8s.io/kubernetes/cmd/kube-apiserver
	k8s.io/kubernetes/cmd/kube-controller-manager
	k8s.io/kubernetes/cmd/kube-scheduler
	k8s.io/kubernetes/cmd/kubectl
)

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here/binaries"

# One build at a time per folder: a second caller waits for the first and then finds everything built.
exec 9>"$out/.lock"
flock -n 9 || { echo "controlplane: another build writes to $out; waiting for it"; flock 9; }

stamp=$({ cat go.mod go.sum etcd/main.go "$here/build.sh"; go version; go env GOOS GOARCH; } | sha256sum | cut -d' ' -f1)
partial= builder=
trap '[[ -z $builder ]] || kill "$builder" 2>/dev/null || :; [[ -z $partial ]] || rm -f "$partial"' EXIT

# Without a version stamp the server calls itself v0.0.0-master+$Format:%H$, which clients cannot parse.
ldflags() {
	local version=$1 minor package flags="-s -w"
	minor=${version#v1.}
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
	done
	echo "$flags"
}

duration() { # seconds
	if (($1 >= 60)); then printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); else printf '%ds' "$1"; fi
}

build() { # label package name
	local label=$1 package=$2 name=$3 started=$SECONDS said=$SECONDS
	partial=$out/.$name.partial
	go build -trimpath -buildvcs=false -ldflags "$flags" -o "$partial" "$package" 9>&- &
	builder=$!
	while kill -0 "$builder" 2>/dev/null; do
		sleep 0.5 9>&- # nobody but us holds the lock, so it goes when we do
		if ((SECONDS - said >= heartbeat)); then
			said=$SECONDS
			echo "$label $name … still compiling after $(duration $((SECONDS - started)))"
		fi
	done
	if ! wait "$builder"; then
		builder=
		echo "controlplane: building $name failed (see above); 'make controlplane' goes on from here" >&2
		return 1
	fi
	builder=
	mv "$partial" "$out/$name"
	partial=
	echo "$stamp" >"$out/.$name.stamp"
	echo "$label $name … $(duration $((SECONDS - started)))"
}

missing=0
for package in "${programs[@]}"; do
	name=${package##*/}
	[[ -x $out/$name && $(cat "$out/.$name.stamp" 2>/dev/null) == "$stamp" ]] || missing=$((missing + 1))
done
if ((missing == 0)); then
	echo "controlplane: $out is up to date"
	exit 0
fi

echo "controlplane: building $missing of ${#programs[@]} programs into $out (the first time takes about 8 minutes on 2 cores)"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
flags=$(ldflags "$version")
n=0
for package in "${programs[@]}"; do
	name=${package##*/}
	n=$((n + 1))
	label="[$n/${#programs[@]}]"
	if [[ -x $out/$name && $(cat "$out/.$name.stamp" 2>/dev/null) == "$stamp" ]]; then
		echo "$label $name … up to date"
		continue
	fi
	build "$label" "$package" "$name"
done
echo "controlplane: kubernetes $version is in $out, built in $(duration $SECONDS)"
