// Package permissions sends a real kube-apiserver with RBAC, and Spillway in front of it, the same
// requests of many users with all sorts of rights: the decision and the answer must be the same in
// every cell. And it reads every byte that a refused client is sent: none of them may be an
// object's.
package permissions
