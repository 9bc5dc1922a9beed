// Package passthrough forwards requests to the API server unchanged, and its answers to the client.
//
// Forwarder decides once, for HTTP/1.1 and HTTP/2, what the API server gets of a request: which
// headers, under whose credentials, over which transport. A short request over HTTP/1.1 goes
// straight to a RoundTripper. Everything else (upgrades, watches, logs, chunked and large bodies,
// HTTP/2) is streamed both ways. Coalescer lets LISTs of the most recent state that pass through at
// the same time share one request upstream (design D7).
//
// Invariant: every request that is admitted is ended once, by its answer at the latest. Credentials
// of the proxy never travel with a request that might lead to another place than the API server,
// and transports of different credentials are never mixed (design D12).
//
// Why not httputil.ReverseProxy: over HTTP/1.1 it costs half as much again as the direct way, and
// needs a net/http server, which waits for the rest of a body after the answer.
package passthrough
