package fakeapiserver

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

// ClientOption changes how List and Watch speak to a server.
type ClientOption func(*clientOptions)

type clientOptions struct {
	header http.Header
	tls    *tls.Config
	buffer int
	client *http.Client
}

// Header adds a request header; Host is set as such.
func Header(name, value string) ClientOption {
	return func(o *clientOptions) { o.header.Add(name, value) }
}

// TLS says whom to trust, and which protocols to offer. Without it https servers are believed.
func TLS(c *tls.Config) ClientOption { return func(o *clientOptions) { o.tls = c } }

// ReceiveBuffer limits the kernel's receive buffer to about n bytes, so that a client that stalls
// is soon felt by the server.
func ReceiveBuffer(n int) ClientOption { return func(o *clientOptions) { o.buffer = n } }

// Through uses a client, and so its connections, instead of a connection of one's own. TLS and
// ReceiveBuffer are the client's then.
func Through(c *http.Client) ClientOption { return func(o *clientOptions) { o.client = c } }

// call sends one GET without any headers that were not asked for but User-Agent. done gives the
// connection back.
func call(ctx context.Context, baseURL, path string, opts []ClientOption) (response *http.Response, done func(),
	err error) {
	o := clientOptions{header: http.Header{},
		tls: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- tests talk to throw-away certificates
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
	r := (&http.Request{Method: http.MethodGet, URL: target, Header: o.header, Host: o.header.Get("Host")}).WithContext(
		ctx)
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

func (o *clientOptions) transport() *http.Transport {
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

// EndReason says how a request or stream ended, as the client can tell.
type EndReason string

const (
	Ended        EndReason = "ended"        // the body ended with its terminator
	Cut          EndReason = "cut"          // the connection broke while the body was under way
	Rejected     EndReason = "rejected"     // an HTTP status other than 200
	Unreachable  EndReason = "unreachable"  // no answer at all
	Cancelled    EndReason = "cancelled"    // the client gave up
	Unparsable   EndReason = "unparsable"   // 200, and then something that is no watch event
	Unterminated EndReason = "unterminated" // the body ended properly, in the middle of a line
)

// reasonOf classifies the error that ended a body.
func reasonOf(ctx context.Context, err error) EndReason {
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
