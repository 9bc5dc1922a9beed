// Package chart holds the Helm chart to what it promises: whatever it renders, a real
// kube-apiserver takes; what runs with the rights and files that it gives does its work; and none
// of these rights is one too many.
package chart
