// Package wire speaks HTTP/1.1 byte for byte, and keeps every byte that arrives. The invariant:
// what Ask returns as received is all that arrived between the request and the end of its answer,
// and whatever arrives that is no part of an answer is an error, sooner or later: of Ask, of the
// next Ask, or of Close.
package wire

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"spillway/test/framework/exchange"
)

// Patience bounds how long an answer may take. It decides nothing but how long a failing run takes.
const Patience = 2 * time.Minute

// Address is where to connect to.
type Address struct {
	Host string      // host:port
	TLS  *tls.Config // nil: plain
}

// Conn is a connection to a server.
type Conn struct {
	conn   net.Conn
	record record
	r      *bufio.Reader
}

// record keeps what is read.
type record struct {
	net.Conn
	bytes bytes.Buffer
}

// Read implements io.Reader.
func (r *record) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.bytes.Write(p[:n])
	return n, err
}

// Dial connects.
func Dial(ctx context.Context, to Address) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", to.Host)
	if err != nil {
		return nil, err
	}
	if to.TLS != nil {
		secure := tls.Client(conn, to.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, fmt.Errorf("handshake with %s: %w", to.Host, err)
		}
		conn = secure
	}
	c := &Conn{conn: conn}
	c.record.Conn = conn
	c.r = bufio.NewReaderSize(&c.record, 64<<10)
	return c, nil
}

// Write sends bytes as they are.
func (c *Conn) Write(p []byte) (int, error) { return c.conn.Write(p) }

// Ask sends a request as it stands and reads its answer to the end. received is all that came, as
// it came. It must not be called again after an answer that closes.
func (c *Conn) Ask(method string, raw []byte) (a *exchange.Answer, received []byte, err error) {
	return c.AskUntil(method, raw, nil)
}

// AskUntil reads the answer until enough of its body is there, if it does not end before. After
// that the connection is of no use.
func (c *Conn) AskUntil(method string, raw []byte, enough func(body []byte) bool) (a *exchange.Answer, received []byte,
	err error) {
	if n := c.r.Buffered(); n > 0 {
		rest, _ := c.r.Peek(n)
		return nil, rest, fmt.Errorf("%d bytes came after the last answer: %q", n, exchange.Clip(rest))
	}
	c.record.bytes.Reset()
	if err := c.conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		return nil, nil, err
	}
	start := time.Now()
	// A request may be refused before all of it has been sent, and the rest of it need not be read any
	// more.
	written := make(chan error, 1)
	go func() {
		_, err := c.conn.Write(raw)
		written <- err
	}()
	response, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return nil, c.received(), fmt.Errorf("after %q: %w", exchange.Clip(c.received()), err)
	}
	a = &exchange.Answer{Proto: response.Proto, Status: response.StatusCode, Header: exchange.WholeHeader(response)}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return a, c.received(), nil
	}
	a.Body, a.Cut = readUntil(response.Body, enough)
	if !response.Close && enough == nil {
		if err := <-written; err != nil {
			return a, c.received(), fmt.Errorf("sending the request: %w", err)
		}
	}
	a.Took, a.Length = time.Since(start), len(a.Body)
	if response.Close && a.Cut == nil && enough == nil {
		if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
			return a, c.received(), fmt.Errorf("after an answer that closes: %q, %w", exchange.Clip(rest), err)
		}
	}
	if response.Header.Get("Content-Encoding") == "gzip" {
		if a.Body, err = Gunzip(a.Body); err != nil {
			return a, c.received(), err
		}
	}
	return a, bytes.Clone(c.received()), nil
}

func readUntil(r io.Reader, enough func([]byte) bool) ([]byte, error) {
	if enough == nil {
		return io.ReadAll(r)
	}
	var all []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		all = append(all, buf[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, err
		case enough(all):
			return all, nil
		}
	}
}

func (c *Conn) received() []byte { return c.record.bytes.Bytes() }

// Silent waits for so long, and is an error if anything comes that is not the end of the
// connection.
func (c *Conn) Silent(d time.Duration) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	b, err := c.r.ReadByte()
	switch {
	case err == nil:
		rest, _ := c.r.Peek(c.r.Buffered())
		return fmt.Errorf("after the last answer came: %q", exchange.Clip(append([]byte{b}, rest...)))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("after the last answer: %w", err)
}

// Close closes the connection.
func (c *Conn) Close() { c.conn.Close() }

// Gunzip decodes a body that says that it is gzipped.
func Gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("a body that says it is gzipped: %w", err)
	}
	return io.ReadAll(z)
}
