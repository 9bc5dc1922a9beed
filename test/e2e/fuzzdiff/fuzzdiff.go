// Package fuzzdiff sends an API server and Spillway the same random requests and compares the
// answers by the rules of package exchange. The conformance suite has requests that were thought
// of; these are the others: valid and invalid, escaped and badly escaped, of every state that there
// is and of none.
//
// The invariant: a request is a function of the seed, its number and the cluster's state, never of
// the requests before it; and nothing writes while requests are under way. So a difference is one
// between the two answers, can be had again, and is shrunk until nothing more can be left out.
//
// Watches are also started while there are writes: each has an object of its own, which is written
// when the heads of both answers are there.
package fuzzdiff
