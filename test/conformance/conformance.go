// Package conformance asks the same of an apiserver twice, directly and through Spillway, and compares the answers: status,
// headers, decoded bodies, and streams event for event. The invariant: no answer differs but in the ways that Deviations
// declares, and each of those is needed.
//
// `go test ./conformance` starts a real control plane and the real proxy; `-full` adds what takes minutes.
package conformance
