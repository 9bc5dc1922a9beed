// Package release holds the scripts of a release to what they promise: the same commit gives the
// same files, and Helm installs the chart from a registry. The registry is one of this process.
package release
