// Package outage takes a real kube-apiserver away from under Spillway, and gives it back: frozen,
// so that its connections stay open and silent, and killed. Watches stay, states of any age are
// answered with their age, requests for newer ones are refused, and afterwards all is current
// within seconds, while no client has listed again.
package outage
