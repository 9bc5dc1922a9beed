#!/usr/bin/env bash
# Installs Debian's Node.js and npm where they are missing: the JavaScript client's test needs them. Elsewhere, or without the
# right to install, it says so and fails.
set -euo pipefail

if command -v node >/dev/null && command -v npm >/dev/null; then
	exit 0
fi
if ! command -v apt-get >/dev/null || ((EUID != 0)); then
	echo "node: install Node.js (18 or newer) and npm; this script only can as root on Debian" >&2
	exit 1
fi
echo "node: installing Debian's nodejs and npm"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends nodejs npm >/dev/null
