// Package revocation takes rights away from users while they watch through Spillway, in front of a
// real kube-apiserver: no watch delivers anything more than half a minute after its user has lost
// the right, and a user that has it again resumes from where the watch was.
package revocation
