// Package plan decides how a request is answered: from memory, from memory once that is proven
// fresh, with a refusal in the API server's words, or by the API server (design D1).
//
// Planner.Consider looks at what is known before authentication: method, path, query, and whether
// the resource may be mirrored. Planner.Decide makes the Plan of an authorised request: which
// objects, from which version, in which form. Planner.Awaits reports that the client must send the
// request again: memory cannot answer it now, and the API server would answer it differently.
//
// Options are decoded and validated by the code of the API server, in its order, so that an error
// has the same words. The form is negotiated by rules of the package's own (W-42).
//
// Invariant: planning waits for nothing. It reads the request, the catalog, the mirror's progress
// and whether proofs fail. Catalog.Find may start a mirror, so Decide is called only for authorised
// requests. A request in doubt goes upstream.
//
// Why not decide while answering: tests and fuzzers can check the plan for any request without
// running a server.
package plan
