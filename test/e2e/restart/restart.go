// Package restart takes away from real informers what they watch through: Spillway is killed and
// started again, another replica takes over, kube-apiserver is restarted behind it. Objects change
// all the while. No informer may list again as long as upstream remembers, and all must end with
// what upstream has.
package restart
