// Package permissions asks a real kube-apiserver with RBAC, and Spillway before it, the same for
// many people with all sorts of rights: the decision and the answer must be the same in every cell.
// And it reads every byte that a refused client is sent: none of them may be an object's.
package permissions
