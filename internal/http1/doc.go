// Package http1 serves HTTP/1.1 on fasthttp: it accepts, parses and hands requests over. It is the
// only importer of fasthttp, whose requests and buffers are valid only until their handler returns.
//
// A Server reads the connections of one listener. An ordinary head fits into a small buffer that
// the connection keeps; a large one is read into bytes of a shared pool and served by a server of
// its own. A watch or an upgrade takes the connection from fasthttp (hijack), and a watch that ends
// cleanly gives it back.
//
// Invariant: framing that two parsers may read differently ends the connection; nothing that was
// read behind a hijacked request is read as another one.
//
// Why not net/http: the small GETs and LISTs of HTTP/1.1 clients cost less here, and an idle
// connection holds no goroutine's buffers. HTTP/2 is in package h2.
package http1
