// Package failclosed puts Spillway in front of a real kube-apiserver into doubt about identities
// and rights: reviews that fail, that are not answered, or that say nothing; certificates that end
// or are of yesterday's authority; tokens for other audiences. In no such case may a request be
// answered from memory.
package failclosed
