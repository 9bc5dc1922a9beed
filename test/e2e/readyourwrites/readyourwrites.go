// Package readyourwrites holds Spillway to the one promise that a cache most easily breaks: who
// writes and then reads with resourceVersion unset finds what he wrote, and so does whoever he told
// of it. The tests write, and in the same breath read through the proxy, whose own watch is late on
// purpose; there is nothing here but tests.
package readyourwrites
