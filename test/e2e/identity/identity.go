// Package identity sends Spillway every header that can name a user, in every way in which
// intermediaries have lost or changed one, along every way that a request can take through it, and
// reads in upstream's own audit log which user sent it: the client, as if the request had gone
// there directly, or an unauthenticated user. Never the proxy.
package identity
