// Package cluster installs the chart, with the image that the Dockerfile gives, into a real cluster
// of two nodes, and holds it there to what the other suites show of processes: clients behind the
// Service list nothing again and miss nothing while pods are replaced, no request of theirs fails
// when a node loses its power, kubectl's sessions with a pod are as without it, Prometheus finds
// every pod, the NetworkPolicy admits the clients it names, and pods with a sidecar start and work,
// whatever they look like.
package cluster
