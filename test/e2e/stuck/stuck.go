// Package stuck takes away what a Spillway writes to, reads, or asks for its credentials, without
// closing it: a log that nothing reads, a credential plugin and a file that do not answer, and
// loops that a planted fault stops. Events go on, answers carry their age, what is stuck is named,
// and SIGTERM ends the process.
package stuck
