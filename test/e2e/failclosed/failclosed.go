// Package failclosed puts Spillway before a real kube-apiserver into doubt about who asks and what
// he may have: reviews that fail, that do not come, or that say nothing; certificates that end or
// are of yesterday's authority; tokens for others. Whatever it is, nobody may be answered from
// memory on the strength of it.
package failclosed
