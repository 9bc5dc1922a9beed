// Package watchers runs Kubernetes' own conformance specs of watches against Spillway, again and
// again on a busy machine. The program with the specs is of the module in specs: `make watchers`
// builds it. There is nothing here but a test.
package watchers
