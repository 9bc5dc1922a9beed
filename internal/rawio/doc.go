// Package rawio sends and receives on sockets without an announcement to Go's scheduler.
//
// A non-blocking send or receive takes microseconds. To announce a system call to the scheduler
// costs a quarter of such a send; and in a process that was idle it wakes the runtime's monitor,
// which then looks fifty times, every 20 to 70 µs, whether a thread has been in a system call for
// too long (go.dev/issue/18236). A proxy with a few events a second is idle between any two of
// them.
//
// A Sender sends what a socket has room for, a Receiver takes what has arrived, and both leave the
// wait to their caller: the writers of watches, and connections over HTTP/2. A TCPConn is a
// net.Conn that waits in Go's poller as net's own does: the connections to the API server.
//
// Invariant: only calls that cannot block are made without an announcement (MSG_DONTWAIT). The
// descriptor stays open during a call, because syscall.RawConn holds it.
//
// Why not package net: it announces every call. Why not io_uring: see docs/design/rejected.md.
//
// Where the kernel is not Linux, NewConn returns its argument, and a Sender sends nothing
// (Supported). With the race detector, a TCPConn calls package syscall, which tells the detector
// what happened before what.
package rawio
