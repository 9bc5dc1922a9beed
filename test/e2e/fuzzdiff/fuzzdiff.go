// Package fuzzdiff asks an apiserver and Spillway the same random things and holds the answers
// against each other by the rules of package exchange. Where the conformance suite asks what
// somebody has thought of, this asks what nobody has: valid and invalid, escaped and badly escaped,
// of every state that there is and of none.
//
// The invariant: a request is a function of the seed, its number and the cluster's state, never of
// who was asked before it; and nothing writes while requests are under way. So a difference is one
// between the two answers, can be had again, and is shrunk until nothing more can be left out.
package fuzzdiff
