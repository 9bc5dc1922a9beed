// Package inject shows that what `spillway inject` and its webhook make of pods is what it should
// be: kube-apiserver takes it, and programs that know nothing of Spillway, run as the kubelet would
// run them, talk to it.
package inject
