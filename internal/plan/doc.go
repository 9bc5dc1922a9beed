// Package plan decides how a request is answered: from memory, from memory once that is proven
// fresh, with a refusal in the apiserver's words, or by the apiserver (design D1).
//
// Planner.Consider looks at what can be known before the sender is: method, path, query.
// Planner.Decide makes the Plan of an authorised request: which objects, from which version, in
// which form. Options are decoded, validated and negotiated by the apiserver's own code, in its
// order, so that an error is worded as there.
//
// Invariant: planning does nothing. It looks at the request and at the catalog, waits for nothing,
// and what is in doubt goes upstream.
//
// Why not decide while answering: a plan can be compared with the apiserver's answer for any
// request, by tests and fuzzers, without a server.
package plan
