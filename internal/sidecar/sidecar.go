// Package sidecar gives the other containers of a pod what their in-cluster configuration reads, so
// that it leads them to the proxy beside them: a certificate for loopback that they trust, and a
// copy of the pod's service account that follows it.
//
// The invariant: whoever reads finds a token, a namespace and certificates that belong together,
// whenever he reads and whatever is being written; and the key that signed the proxy's certificate
// is gone before the certificate is used.
package sidecar
