#!/usr/bin/env bash
# Builds what the demo needs and runs it. Act one runs at once, in front of an API server made for
# tests. Beside it, this script builds what act two needs: `demo.sh build`. Act two runs in front of
# etcd and kube-apiserver, or of the cluster of $DEMO_KUBECONFIG, for which there is no act one.
# ACT=1 ends after act one, and ACT=2 skips it.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/progress.sh

say() { printf '\n== %s\n' "$*"; }
fail() { echo "demo: $*" >&2 && exit 2; }

kubeconfig=${DEMO_KUBECONFIG:-}
kubeconfig=${kubeconfig/#\~\//$HOME/}
act=${ACT:-}
[[ $act == @(|1|2) ]] || fail "ACT=$act is neither 1 nor 2"
[[ -z $kubeconfig || $act != 1 ]] || fail "ACT=1 shows no cluster: leave KUBECONFIG out"
[[ -z $kubeconfig || -r $kubeconfig ]] || fail "cannot read the kubeconfig $kubeconfig"

# What act two needs: all that it shows and nothing else.
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
acttwo=(bin/demo-acttwo ${kubeconfig:+-kubeconfig="$kubeconfig"} -kubectl="$kubectl")

# compile builds a program of the demo with Spillway's flags, so that both share what is compiled.
compile() { (cd test && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "../bin/demo-$1" "./demo/$1"); }

build_acttwo() {
	echo "compiling the program of act two"
	with_progress "building act two" compile acttwo
	((${#programs[@]} == 0)) || KUBERNETES= ./test/framework/controlplane/build.sh "${programs[@]}"
	[[ -z $older ]] || ./test/framework/controlplane/build.sh # that of $KUBERNETES
}

if [[ ${1:-} == build ]]; then # beside act one, which it must not slow down; SIGTERM ends all of it
	trap 'trap "" TERM && kill 0 && exit 143' TERM
	renice -n 10 $$ >/dev/null || :
	build_acttwo </dev/null &
	wait $!
	exit
fi

say "make demo"
[[ $act == 2 || -n $kubeconfig ]] || echo "Act one comes at once: Spillway in front of an API server made for tests."
if [[ -n $kubeconfig ]]; then
	echo "Spillway in front of the cluster of $kubeconfig: half a minute, then until Ctrl-C."
elif [[ $act != 1 ]]; then
	echo "Act two comes when etcd and kube-apiserver${older:+ of $older} are built: about 7 minutes${older:+ and 6} on 2 processors,"
	echo "once per machine. It takes half a minute, and then runs until Ctrl-C."
fi

say "Spillway and the demo, from source: about 4 minutes the first time, then seconds"
with_progress "building Spillway" make --no-print-directory build ${VERSION:+VERSION="$VERSION"}
if [[ $act == 2 || -n $kubeconfig ]]; then
	build_acttwo
	exec env -u KUBECONFIG "${acttwo[@]}"
fi
with_progress "building the demo" compile actone
[[ $act != 1 ]] || exec env -u KUBECONFIG bin/demo-actone
exec env -u KUBECONFIG bin/demo-actone -build="hack/demo.sh build" "${acttwo[@]}"
