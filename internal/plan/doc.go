// Package plan decides how a request is answered: from memory, from memory once that is proven
// fresh, with a refusal in the API server's words, or by the API server (design D1).
//
// Planner.Consider looks at what can be known before the sender is: method, path, query.
// Planner.Decide makes the Plan of an authorised request: which objects, from which version, in
// which form. Options are decoded, validated and negotiated by the API server's own code, in its
// order, so that an error has the same words.
//
// Invariant: planning only reads the request and the catalog, and waits for nothing. A request in
// doubt goes upstream.
//
// Why not decide while answering: tests and fuzzers can compare a plan with the API server's answer
// to any request, without a server.
package plan
