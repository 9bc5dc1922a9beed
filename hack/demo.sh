#!/usr/bin/env bash
# Builds what the demo needs and runs it: before the cluster of $DEMO_KUBECONFIG, or before a control plane of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

kubeconfig=${DEMO_KUBECONFIG:-}
kubeconfig=${kubeconfig/#\~\//$HOME/}
if [[ -n $kubeconfig && ! -r $kubeconfig ]]; then
	echo "demo: cannot read the kubeconfig $kubeconfig" >&2
	exit 1
fi

say "building Spillway and the demo"
make --no-print-directory build ${VERSION:+VERSION="$VERSION"}
(cd test && go build -o ../bin/demo ./demo)

if [[ -z $kubeconfig ]]; then
	say "building the control plane (once per machine)"
	make --no-print-directory controlplane
	say "the show begins"
	exec env -u KUBECONFIG bin/demo
fi

kubectl=$(command -v kubectl || :)
if [[ -z $kubectl ]]; then
	say "building kubectl, since there is none in PATH (once per machine)"
	./test/framework/controlplane/build.sh kubectl
	kubectl=${CONTROLPLANE_DIR:-bin/controlplane}/kubectl
fi
say "the show begins"
exec env -u KUBECONFIG bin/demo -kubeconfig="$kubeconfig" -kubectl="$kubectl"
