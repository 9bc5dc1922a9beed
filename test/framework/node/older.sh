#!/usr/bin/env bash
# Builds the programs of a cluster of an older minor, KUBERNETES=1.33, into the folder in which controlplane/build.sh has its kube-apiserver,
# bin/controlplane-1.33: kubelet and kube-proxy from the module that it leaves there. What is there is not built again.
set -euo pipefail

minor=${KUBERNETES:?}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "$here/../../.." && pwd)/bin
"$here/../controlplane/build.sh" kube-apiserver kube-controller-manager kube-scheduler

out=${CONTROLPLANE_DIR:+$CONTROLPLANE_DIR/$minor}
out=${out:-$bin/controlplane-$minor}
[[ -d $out/.module ]] || exit 0 # the newest minor: build.sh builds it
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=mod
cd "$out/.module"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor#1.}"
done
for name in kubelet kube-proxy; do
	[[ ! -x $out/$name ]] || continue
	started=$SECONDS
	go build -trimpath -buildvcs=false -ldflags "$flags" -o "$out/.$name.partial" "k8s.io/kubernetes/cmd/$name"
	mv "$out/.$name.partial" "$out/$name"
	echo "node: $name $version … $((SECONDS - started)) s"
done
