#!/usr/bin/env bash
# Builds kubelet and kube-proxy, of the Kubernetes of the control plane, containerd with its shim and ctr (binaries/go.mod), and the pause
# program. Needs Go and a module proxy, nothing else. They go to $NODE_DIR; when that is not set, to a folder of the user's cache named after
# the stamp, which all clones on this machine share, with bin/node as a link to it. What is there is not built again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
controlplane=$(cd "$here/../controlplane/binaries" && pwd)
link=$(cd "$here/../../.." && pwd)/bin/node
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

sources=("$controlplane"/go.{mod,sum} "$here"/binaries/{go.mod,go.sum,kubernetes.sum} "$here/pause/main.go" "$here/build.sh")
stamp=$({ cat "${sources[@]}"; go version; go env GOOS GOARCH; } | sha256sum | cut -c1-16)
out=${NODE_DIR:-}
if [[ -z $out ]]; then
	out=${XDG_CACHE_HOME:-$HOME/.cache}/spillway/node/$stamp
	mkdir -p "${link%/*}"
	ln -sfnT "$out" "$link"
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

# One build at a time per folder: a second caller waits for the first and then finds everything built.
exec 9>"$out/.lock"
flock -n 9 || { echo "node: another build writes to $out; waiting for it"; flock 9; }

programs=() built=0
build() { # folder of the module, flags of the linker, packages
	local module=$1 flags=$2 package name started
	shift 2
	for package; do
		name=${package##*/}
		programs+=("$name")
		[[ ! -x $out/$name || $(cat "$out/.$name.stamp" 2>/dev/null) != "$stamp" ]] || continue
		((built++)) || echo "node: building into $out (the first time takes about 6 minutes on 2 cores)"
		started=$SECONDS
		go -C "$module" build -trimpath -buildvcs=false -ldflags "$flags" -o "$out/.$name.partial" "$package" 9>&-
		mv "$out/.$name.partial" "$out/$name"
		echo "$stamp" >"$out/.$name.stamp"
		echo "node: $name … $((SECONDS - started)) s"
	done
}

# kubernetes makes the module of kubelet and kube-proxy: the control plane's, and the sums of what only they need.
kubernetes() {
	mkdir -p "$out/.module"
	cp "$controlplane/go.mod" "$out/.module/go.mod"
	cat "$controlplane/go.sum" "$here/binaries/kubernetes.sum" >"$out/.module/go.sum"
	echo "$out/.module"
}

module=$(kubernetes)
version=$(go -C "$module" list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
done
build "$module" "$flags" k8s.io/kubernetes/cmd/{kubelet,kube-proxy}
build "$here/binaries" "-s -w" github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
build "$here/../.." "-s -w" spillway/test/framework/node/pause
((built > 0)) || echo "node: $out is up to date"
