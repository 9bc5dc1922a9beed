// Package readyourwrites holds Spillway to the one promise that a cache most easily breaks: a
// client that writes and then reads with resourceVersion unset finds what it wrote, and so does a
// client that learnt of the write from it. The tests write, and at once read through the proxy,
// whose own watch is late on purpose; there is nothing here but tests.
package readyourwrites
