// Package clients runs clients that are not client-go, unmodified, through Spillway before a real
// control plane. The invariant: a client ends with the apiserver's state, and received each change
// once.
package clients
