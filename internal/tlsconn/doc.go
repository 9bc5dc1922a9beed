// Package tlsconn bounds what a client can make crypto/tls hold and decode, from the first byte of
// its handshake.
//
// crypto/tls has limits of its own: a handshake message of 64 KiB, one with certificates of 256
// KiB, whose decoded form may be 24 times as large, and a message after the handshake that never
// ends. A client needs no credentials for any of these.
//
// So a Meter counts the bytes that TLS reads. It ends a connection whose handshake is longer than
// HandshakeBytesLimit, or that has sent more than SilentBytesLimit since the last byte of
// plaintext. A SecureConn is the TLS connection, and reports the end of the handshake and plaintext
// to the Meter. CheckCertificates bounds the decoded certificates that stay with a connection.
//
// Invariant: every listener with TLS has all three. Package clientconn has the Meter of the main
// listeners, Listener that of net/http servers.
package tlsconn
