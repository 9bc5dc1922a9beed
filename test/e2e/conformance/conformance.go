// Package conformance sends an API server and Spillway the same requests, those of the rules of
// docs/protocol.md and of clients' habits, and compares the answers by the rules of package
// exchange. The invariant: no answer differs but in the ways that exchange.Deviations declares, and
// each of those is needed.
//
// `go test ./e2e/conformance` starts a real control plane and the real proxy; `-full` adds what
// takes minutes.
package conformance
