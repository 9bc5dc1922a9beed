// Package exchange sends an API server the same request twice, directly and through Spillway, and
// compares the answers: status, headers, decoded bodies, and streams event for event. The
// invariant: two answers that differ are called equal only where Deviations says so, and every time
// that it is relied on is counted.
//
// Nothing in it knows a cluster or a test: the conformance suite has a list of requests, the fuzzer
// makes them up.
package exchange
