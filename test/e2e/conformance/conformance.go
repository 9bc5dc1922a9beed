// Package conformance asks the same of an apiserver and of Spillway, as rules of docs/protocol.md
// and clients' habits say, and holds the answers against each other by the rules of package
// exchange. The invariant: no answer differs but in the ways that exchange.Deviations declares, and
// each of those is needed.
//
// `go test ./e2e/conformance` starts a real control plane and the real proxy; `-full` adds what
// takes minutes.
package conformance
