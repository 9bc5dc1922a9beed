#!/usr/bin/env bash
# Builds what the demo needs and runs it: in front of the cluster of $DEMO_KUBECONFIG, or of a
# control plane of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/progress.sh

say() { printf '\n== %s\n' "$*"; }

kubeconfig=${DEMO_KUBECONFIG:-}
kubeconfig=${kubeconfig/#\~\//$HOME/}
if [[ -n $kubeconfig && ! -r $kubeconfig ]]; then
	echo "demo: cannot read the kubeconfig $kubeconfig" >&2
	exit 1
fi

# What is built: all that the demo shows and nothing else.
programs=(etcd kube-apiserver kubectl)
[[ -z $kubeconfig ]] || programs=()
kubectl=${CONTROLPLANE_DIR:-bin/controlplane}/kubectl
if [[ -n $kubeconfig ]] && ! kubectl=$(command -v kubectl); then
	kubectl=${CONTROLPLANE_DIR:-bin/controlplane}/kubectl
	programs=(kubectl)
fi

# With KUBERNETES=1.33 in front of kube-apiserver of another minor, beside that of the newest.
older=
[[ -n $kubeconfig ]] || older=${KUBERNETES:-}

steps=("Spillway and the demo, from source: about 4 minutes the first time, then seconds")
if ((${#programs[@]} > 0)); then
	steps+=("${programs[*]}${older:+, kube-apiserver of $older}, from source: about 7 minutes${older:+ and 6} on 2 processors, once per machine")
fi
if [[ -n $kubeconfig ]]; then
	steps+=("the demo in front of the cluster of $kubeconfig: half a minute, then until Ctrl-C")
else
	steps+=("the demo in front of etcd and kube-apiserver${older:+ of $older}: half a minute, then until Ctrl-C")
fi
say "make demo: ${#steps[@]} steps"
for i in "${!steps[@]}"; do echo "$((i + 1)). ${steps[i]}"; done

say "1. Spillway and the demo"
with_progress "building Spillway" make --no-print-directory build ${VERSION:+VERSION="$VERSION"}
(cd test && with_progress "building the demo" go build -o ../bin/demo ./demo)
if ((${#programs[@]} > 0)); then
	say "2. ${programs[*]}"
	KUBERNETES= ./test/framework/controlplane/build.sh "${programs[@]}"
	[[ -z $older ]] || ./test/framework/controlplane/build.sh # that of $KUBERNETES
fi

say "${#steps[@]}. the demo"
exec env -u KUBECONFIG bin/demo ${kubeconfig:+-kubeconfig="$kubeconfig"} -kubectl="$kubectl"
