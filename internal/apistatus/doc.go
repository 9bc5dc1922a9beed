// Package apistatus words answers as kube-apiserver does, above all failures, and writes them.
//
// A client of the proxy reads a Status as if the API server had sent it: same JSON, same Audit-Id,
// Cache-Control, Retry-After and nosniff headers (W-3, W-170 to W-182). Responder is where the one
// answer to a request is written. Each protocol implements it, so what an answer says is decided
// once for all of them.
//
// Invariant: a Responder sends one answer. A 502 has no Retry-After, because client-go repeats
// every request whose answer has one, and a request behind a 502 may have been carried out.
//
// Why not k8s.io/apiserver's response writers: they write to net/http alone, and bring a server's
// scheme and negotiation along.
package apistatus
