// Package sidecar gives the other containers of a pod what their in-cluster configuration reads, so
// that it leads them to the proxy beside them: a certificate for loopback that they trust, and a
// copy of the pod's service account that follows it.
//
// The invariant: a container reads a token, a namespace and certificates that belong together, at
// any time, even while files are written; and the key that signed the proxy's certificate is
// dropped before the certificate is used.
package sidecar
