// Package clients runs the clients of many languages, unmodified, through Spillway in front of a
// real control plane. The invariant: a client ends with the API server's state, received each
// change once, and lists no more often than it does at a kube-apiserver.
//
// A client is a small program in a folder of its own, pinned by a lock file, that speaks the
// protocol of protocol_test.go; clients_test.go has a row for each.
package clients
