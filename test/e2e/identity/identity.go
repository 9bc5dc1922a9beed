// Package identity sends Spillway every header that can say who is asking, in every way in which
// intermediaries have lost or changed one, along every way that a request can take through it, and
// reads in upstream's own audit log who asked: the client, as if he had asked directly, or nobody.
// Never the proxy.
package identity
