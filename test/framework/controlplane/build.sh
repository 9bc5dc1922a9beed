#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, or those of them that are named as
# arguments. Needs Go and a module proxy, nothing else. They go to $CONTROLPLANE_DIR; when that is not set, to a folder
# of the user's cache named after the stamp, which all clones on this machine share, with bin/controlplane as a link to it. A
# bin/controlplane that is a folder is built into as it is. A program whose stamp (go.mod, go.sum, the Go version, this
# script) is unchanged is not built again, so an interrupted build goes on where it stopped.
#
# KUBERNETES=1.33 builds kube-apiserver of another minor (binaries/older.txt), or the programs of Kubernetes that are named,
# into a folder of its own, with bin/controlplane-1.33 as a link to it, or into $CONTROLPLANE_DIR/1.33.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
link=$(cd "$here/../../.." && pwd)/bin/controlplane
current=$(sed -n 's|^\tk8s.io/kubernetes v\(1\.[0-9]*\)\..*|\1|p' "$here/binaries/go.mod")
minor=${KUBERNETES:-}
[[ $minor != "$current" ]] || minor=
out=${CONTROLPLANE_DIR:-}
[[ -z $out ]] || { out+=${minor:+/$minor} && mkdir -p "$out" && out=$(cd "$out" && pwd); }
heartbeat=20 # seconds between signs of life of a long build

programs=(
	spillway/test/framework/controlplane/binaries/etcd
	k8s.io/kubernetes/cmd/kube-apiserver
	k8s.io/kubernetes/cmd/kube-controller-manager
	k8s.io/kubernetes/cmd/kube-scheduler
	k8s.io/kubernetes/cmd/kubectl
)

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

release=
if [[ -n $minor ]]; then
	release=$(awk -v minor="$minor" '$1 == minor { print $2 }' "$here/binaries/older.txt")
	if [[ -z $release ]]; then
		echo "controlplane: KUBERNETES=$minor is not a minor that is built here: $(awk '!/^#/ { printf "%s ", $1 }' \
			"$here/binaries/older.txt")$current" >&2
		exit 2
	fi
	link+=-$minor
	programs=("${programs[@]:1}") # etcd is the same for all
	(($# > 0)) || set -- kube-apiserver
fi

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
sources=(go.mod go.sum etcd/main.go)
[[ -z $minor ]] || sources=(older.sum)
stamp=$({ echo "$release"; cat "${sources[@]}" "$here/build.sh"; go version; go env GOOS GOARCH; } | sha256sum | cut -d' ' -f1)

# shared prints the folder that all clones with this stamp share, or nothing where there is no cache to write to.
shared() {
	local dir=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
	[[ $dir == /* ]] || return 0
	dir+=/spillway/controlplane/${minor:+$minor-}${stamp:0:16}
	if mkdir -p "$dir" 2>/dev/null && [[ -w $dir ]]; then echo "$dir"; fi
}

# link_to makes bin/controlplane a link to $1 in one step, so that it is never missing.
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
		sleep 0.5 9>&- # no other process holds the lock, so it goes with this one
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

# older_module makes the module in $1 from which programs of an older minor are built: what Kubernetes requires of others, as
# it requires it, and its staging repositories in the same release.
older_module() {
	local dir=$1 kubernetes
	kubernetes=$(go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	rm -rf "$dir"
	mkdir -p "$dir"
	{
		echo "module spillway/kubernetes"
		grep -E '^(go|godebug) ' "$kubernetes/go.mod"
		sed -n '/^godebug (/,/^)/p' "$kubernetes/go.mod"
		echo "require k8s.io/kubernetes $release"
		awk '/^require \(/ { inside = 1; print; next } inside && /^\)/ { inside = 0; print } inside && $2 != "v0.0.0"' \
			"$kubernetes/go.mod"
		sed -n -E "s|^\tk8s.io/([a-z-]+) => .*|replace k8s.io/\1 => k8s.io/\1 v0.${release#v1.}|p" "$kubernetes/go.mod"
	} >"$dir/go.mod"
	cat "$kubernetes/go.sum" "$here/binaries/older.sum" >"$dir/go.sum"
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
if [[ -n $minor ]]; then
	export GOFLAGS=-mod=mod # programs that are not the default have modules whose sums the checksum database knows
	older_module "$out/.module"
	cd "$out/.module"
fi
version=${release:-$(go list -m -f '{{.Version}}' k8s.io/kubernetes)}
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
