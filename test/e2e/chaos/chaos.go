// Package chaos runs the real proxy in front of a real control plane while everything around it
// breaks: processes are killed and frozen, links are cut, silenced and slowed, history is forgotten
// and rewritten. An oracle that knows from etcd itself what happened judges every client
// afterwards, by nothing but what that client received.
//
// Invariant: whatever breaks, no client receives what never happened, none receives less than a
// bookmark or an answer claims, and when all is whole again every client has the truth. What
// breaks, and when, is a function of a seed.
package chaos
