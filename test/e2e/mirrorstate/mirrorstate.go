// Package mirrorstate holds the states of mirrors against a real kube-apiserver, with the pauses
// that are shipped: behind a proxy that drops bookmarks, with resources that are missing, broken or
// forbidden, and behind a proxy that cuts idle watches.
package mirrorstate
