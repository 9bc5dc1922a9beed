// Package rawclient lists and watches as tests need it: it shows every byte of an answer, sends no
// header that the test did not name, and stops reading on command. client-go does none of that.
package rawclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// RequestOption changes how List and Watch send a request.
type RequestOption func(*requestOptions)

type requestOptions struct {
	header http.Header
	tls    *tls.Config
	buffer int
	client *http.Client
}

// Header adds a request header; Host is set as such.
func Header(name, value string) RequestOption {
	return func(o *requestOptions) { o.header.Add(name, value) }
}

// TLS sets the certificates to trust and the protocols to offer. Without it every certificate is
// accepted.
func TLS(c *tls.Config) RequestOption { return func(o *requestOptions) { o.tls = c } }

// ReceiveBuffer limits the kernel's receive buffer to about n bytes, so that a server soon blocks
// on a client that stalls.
func ReceiveBuffer(n int) RequestOption { return func(o *requestOptions) { o.buffer = n } }

// Through sends the request through c and its connections, instead of on a connection of its own.
// TLS and ReceiveBuffer have no effect then.
func Through(c *http.Client) RequestOption { return func(o *requestOptions) { o.client = c } }

// call sends one GET. Of headers it sends User-Agent and those of opts alone. done releases the
// connection.
func call(ctx context.Context, baseURL, path string, opts []RequestOption) (response *http.Response, done func(),
	err error) {
	o := requestOptions{header: http.Header{}, tls: &tls.Config{InsecureSkipVerify: true}}
	for _, opt := range opts {
		opt(&o)
	}
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, nil, err
	}
	target, err := url.Parse(path) // as it is: neither cleaned nor encoded again
	if err != nil {
		return nil, nil, err
	}
	target.Scheme, target.Host = base.Scheme, base.Host
	r := &http.Request{Method: http.MethodGet, URL: target, Header: o.header, Host: o.header.Get("Host")}
	r = r.WithContext(ctx)
	done = func() {}
	if o.client == nil {
		t := o.transport()
		o.client, done = &http.Client{Transport: t}, t.CloseIdleConnections
	}
	if response, err = o.client.Do(r); err != nil {
		done()
		return nil, nil, err
	}
	return response, done, nil
}

func (o *requestOptions) transport() *http.Transport {
	dialer := &net.Dialer{}
	return &http.Transport{
		DisableCompression: true,
		TLSClientConfig:    o.tls,
		ForceAttemptHTTP2:  o.tls != nil && len(o.tls.NextProtos) > 0,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := c.(*net.TCPConn); ok && o.buffer > 0 {
				err = tcp.SetReadBuffer(o.buffer)
			}
			return c, err
		},
	}
}

// Ending is how a request or a watch ended, as far as the client can see.
type Ending string

const (
	Ended        Ending = "ended"        // the body ended with its terminator
	Cut          Ending = "cut"          // the connection broke while the body was under way
	Rejected     Ending = "rejected"     // an HTTP status other than 200
	Unreachable  Ending = "unreachable"  // no answer at all
	Cancelled    Ending = "cancelled"    // the client gave up
	Unparsable   Ending = "unparsable"   // 200, and then something that is no watch event
	Unterminated Ending = "unterminated" // the body ended properly, in the middle of a line
)

// reasonOf classifies the error that ended a body.
func reasonOf(ctx context.Context, err error) Ending {
	switch {
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return Ended
	case ctx.Err() != nil:
		return Cancelled
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return Cut
	case strings.Contains(err.Error(), "stream error"), strings.Contains(err.Error(), "connection lost"): // h2
		return Cut
	}
	return Unparsable
}
