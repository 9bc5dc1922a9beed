// Package revocation takes rights away from people while they watch through Spillway, before a real
// kube-apiserver: nobody is sent anything any more than half a minute after he may not have it, and
// who may again goes on from where he was.
package revocation
