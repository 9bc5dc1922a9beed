// The tests of what a release consists of; a module of its own, for a registry to push to.
module spillway/hack/release

go 1.26.0

require github.com/google/go-containerregistry v0.22.1
