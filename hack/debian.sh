#!/usr/bin/env bash
# Installs Debian packages where the commands are missing that they are for: hack/debian.sh "node
# npm" nodejs npm. Elsewhere, or without the right to install, it says so and fails.
set -euo pipefail

commands=$1 packages=("${@:2}") missing=
for command in $commands; do
	command -v "$command" >/dev/null || missing+=" $command"
done
[[ -n $missing ]] || exit 0
if ! command -v apt-get >/dev/null || ((EUID != 0)); then
	echo "debian: install$missing; this script only can as root on Debian" >&2
	exit 1
fi
echo "debian: installing ${packages[*]} for$missing"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "${packages[@]}" >/dev/null
