# Sourced: the modules of this repository whose code is checked and tested, the proxy's own first.
# Those that only build programs of other projects and those that only name tools have no code to
# check. The clients are built by the test beside them.
modules() {
	git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' |
		grep -vx -e 'test/framework/controlplane/binaries/go.mod' -e 'test/framework/node/binaries/go.mod' -e 'hack/tools/go.mod' -e 'hack/tools/helm/go.mod' -e 'hack/tools/promtool/go.mod' \
		-e 'hack/tools/golangci/go.mod' -e 'test/e2e/clients/.*/go.mod' -e 'test/e2e/watchers/specs/go.mod' |
		while read -r file; do dirname "$file"; done | LC_ALL=C sort
}
