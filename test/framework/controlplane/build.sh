#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, or those of them that are named as
# arguments. Needs Go and a module proxy, nothing else. They go to $CONTROLPLANE_DIR; when that is not set, to a folder
# of the user's cache named after the stamp, which all clones on this machine share, with bin/controlplane as a link to it. A
# bin/controlplane that is a folder is built into as it is. A program whose stamp (go.mod, go.sum, the Go version, this
# script) is unchanged is not built again, so an interrupted build goes on where it stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
link=$(cd "$here/../../.." && pwd)/bin/controlplane
out=${CONTROLPLANE_DIR:-}
[[ -z $out ]] || { mkdir -p "$out" && out=$(cd "$out" && pwd); }
heartbeat=20 # seconds between signs of life of a long build

programs=(
	spillway/test/framework/controlplane/binaries/etcd
	k8s.io/kubernetes/cmd/kube-apiserver
	k8s.io/kubernetes/cmd/kube-controller-manager
	k8s.io/kubernetes/cmd/kube-scheduler
	k8s.io/kubernetes/cmd/kubectl
)

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

if (($# > 0)); then
	wanted=()
	for package in "${programs[@]}"; do
		for name in "$@"; do [[ ${package##*/} != "$name" ]] || wanted+=("$package"); done
	done
	if ((${#wanted[@]} != $#)); then
		echo "controlplane: one of '$*' is not a program of the control plane: ${programs[*]##*/}" >&2
		exit 2
	fi
	programs=("${wanted[@]}")
fi

cd "$here/binaries"
stamp=$({ cat go.mod go.sum etcd/main.go "$here/build.sh"; go version; go env GOOS GOARCH; } | sha256sum | cut -d' ' -f1)

# shared prints the folder that all clones with this stamp share, or nothing where there is no cache to write to.
shared() {
	local dir=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
	[[ $dir == /* ]] || return 0
	dir+=/spillway/controlplane/${stamp:0:16}
	if mkdir -p "$dir" 2>/dev/null && [[ -w $dir ]]; then echo "$dir"; fi
}

# link_to makes bin/controlplane a link to $1 in one step, so that nobody finds it missing meanwhile.
link_to() {
	[[ $(readlink "$link" || :) != "$1" ]] || return 0
	mkdir -p "${link%/*}"
	ln -sfn "$1" "$link.$$"
	mv -fT "$link.$$" "$link"
}

if [[ -z $out ]]; then
	if [[ -L $link || ! -d $link ]]; then out=$(shared); fi
	if [[ -n $out ]]; then
		link_to "$out"
	else
		[[ ! -L $link ]] || rm "$link"
		out=$link
	fi
fi
mkdir -p "$out"

# One build at a time per folder: a second caller waits for the first and then finds everything built.
exec 9>"$out/.lock"
flock -n 9 || { echo "controlplane: another build writes to $out; waiting for it"; flock 9; }

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
