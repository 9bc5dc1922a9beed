#!/bin/sh
# Give the project an owner's names, in all files that git tracks:
#
#   hack/own.sh MODULE DOMAIN REGISTRY
#   hack/own.sh github.com/acme/spillway spillway.acme.io ghcr.io/acme
#
# MODULE is the path of the Go module. https://MODULE is where the source is. DOMAIN is the prefix
# of labels and annotations, and the end of the configuration file's API group. REGISTRY has the
# image REGISTRY/spillway and the chart REGISTRY/charts/spillway. A second run with the same names
# changes nothing, and one with other names replaces the first names.
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "hack/own.sh: $1" >&2
	exit 1
}

[ $# = 3 ] || die "usage: hack/own.sh MODULE DOMAIN REGISTRY, such as github.com/acme/spillway spillway.acme.io ghcr.io/acme"
NEW_MODULE=$1 NEW_DOMAIN=$2 NEW_REGISTRY=$3
check() { # name, value, pattern, example
	perl -e 'exit $ARGV[0] !~ /\A(?:$ARGV[1])\z/' -- "$2" "$3" || die "$1 $2: must be like $4"
}
label='[a-z0-9]([a-z0-9-]*[a-z0-9])?'
check MODULE "$NEW_MODULE" "$label(\.$label)+(/[A-Za-z0-9._-]+)+" github.com/acme/spillway
check DOMAIN "$NEW_DOMAIN" "$label(\.$label)+" spillway.acme.io
check REGISTRY "$NEW_REGISTRY" "$label(\.$label)*(:[0-9]+)?(/[a-z0-9._-]+)*" ghcr.io/acme

OLD_MODULE=$(sed -n 's/^module //p' go.mod)
OLD_DOMAIN=$(sed -n 's/^const Domain = "\(.*\)"$/\1/p' internal/domain/domain.go)
OLD_REGISTRY=$(sed -n 's/^  registry: \([^ ]*\).*/\1/p' charts/spillway/values.yaml)
[ -n "$OLD_MODULE" ] && [ -n "$OLD_DOMAIN" ] && [ -n "$OLD_REGISTRY" ] ||
	die "the names of now are not in go.mod, internal/domain/domain.go and charts/spillway/values.yaml"
# Without an owner, the links to the source lead to a place below the domain.
case $OLD_MODULE in
*/*) OLD_SOURCE=$OLD_MODULE ;;
*) OLD_SOURCE=$OLD_DOMAIN/source ;;
esac
export NEW_MODULE NEW_DOMAIN NEW_REGISTRY OLD_MODULE OLD_DOMAIN OLD_REGISTRY OLD_SOURCE

# One pass over each line, so that no new name is taken for an old one. A module's name stands in
# front of its packages, and alone where go.mod, the linters and one test name it.
git ls-files -z -- . ':!*.png' ':!*.svg' | xargs -0 perl -pi -e '
	BEGIN {
		%new = ("https://$ENV{OLD_SOURCE}" => "https://$ENV{NEW_MODULE}", $ENV{OLD_DOMAIN} => $ENV{NEW_DOMAIN},
			$ENV{OLD_REGISTRY} => $ENV{NEW_REGISTRY}, $ENV{OLD_MODULE} => $ENV{NEW_MODULE});
		$module = quotemeta $ENV{OLD_MODULE};
		$source = quotemeta "https://$ENV{OLD_SOURCE}";
		$domain = quotemeta $ENV{OLD_DOMAIN};
		$registry = quotemeta $ENV{OLD_REGISTRY};
	}
	s{($source(?![\w-])|(?<![\w-])$domain(?![\w-])|(?<![\w.-])$registry(?![\w-])|(?<![\w./-])$module(?=/(?:internal|cmd|test|bench)\b))}{$new{$1}}g;
	s{^(module |\t|replace |const module = "|.*prefix\()$module(?=$|[/ ")])}{$1$ENV{NEW_MODULE}} if
		$ARGV =~ m{(^|/)go\.mod$|^internal/imports_test\.go$|^\.golangci\.yml$};
'
