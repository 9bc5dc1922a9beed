// Package flowcontrol limits what clients may ask for at a time, fairly among users.
//
// A Gate bounds one quantity: watches, bytes of large answers, requests under way to the API
// server, weight of selectors. A flow is what shares are counted for, a width is how much one
// request takes. What finds no room waits in a queue of its flow, or is refused with a time to come
// again. Flows take turns, so a user with a thousand requests delays another by one. Limiter is all
// gates of the proxy, and the pools for request bodies and large heads. The package knows nothing
// of HTTP.
//
// Invariants: what is held never exceeds the limit, and no flow holds more than its share, unless a
// reserve for others remains free (Options.Reserve). No request is admitted before one that waits
// and whose flow holds less. Waiting is bounded in time and in number, for each flow and for all
// together. Memory is bounded by what is held and by how many may wait, however many flows there
// are.
//
// It is written after kube-apiserver's API Priority and Fairness (KEP-1040) and not made of it. Its
// queueset brings the registry of metrics and the request types of k8s.io/apiserver: 4 MB and 147
// packages more in the binary, for a queue. And where it hashes flows into a fixed number of queues
// (shuffle sharding), so that a flow may share all of its queues with a heavy one, here each flow
// that waits has a queue of its own, because those that wait are bounded by themselves.
package flowcontrol
