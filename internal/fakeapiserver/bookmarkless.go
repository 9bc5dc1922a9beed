package fakeapiserver

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Dropped says which bookmarks a Bookmarkless drops.
type Dropped int

const (
	DropEndMarks  Dropped = iota // the one that ends a watch-list's initial events
	DropInitial                  // all of a watch-list, whenever they come
	DropBookmarks                // all of every watch
	CutAtEndMarks                // the end mark and all that follows: the watch-list ends there
)

// Bookmarkless is a proxy in front of an apiserver that passes on everything but bookmarks, as
// access proxies do that know no such event.
func Bookmarkless(target *url.URL, transport http.RoundTripper, what Dropped) http.Handler {
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1}
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Accept-Encoding", "identity") // lines are to be read
	}
	proxy.ModifyResponse = func(r *http.Response) error {
		query := r.Request.URL.Query()
		if isWatch(query) && (what == DropBookmarks || query.Get("sendInitialEvents") == "true") {
			r.Body = &withoutBookmarks{in: bufio.NewReader(r.Body), body: r.Body, what: what}
		}
		return nil
	}
	return proxy
}

// withoutBookmarks is a watch's body without its bookmarks.
type withoutBookmarks struct {
	in   *bufio.Reader
	body io.Closer
	what Dropped
	line []byte // what of a line has not been read
	err  error
}

// Read implements io.Reader.
func (b *withoutBookmarks) Read(p []byte) (int, error) {
	for len(b.line) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.line, b.err = b.in.ReadBytes('\n')
		bookmark := bytes.HasPrefix(b.line, []byte(`{"type":"BOOKMARK"`))
		end := bookmark && bytes.Contains(b.line, []byte("initial-events-end"))
		switch b.what {
		case CutAtEndMarks:
			if end {
				b.line, b.err = nil, io.EOF
				return 0, io.EOF
			}
		case DropEndMarks:
			bookmark = end
		}
		if bookmark && b.what != CutAtEndMarks {
			b.line = nil
		}
	}
	n := copy(p, b.line)
	b.line = b.line[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *withoutBookmarks) Close() error { return b.body.Close() }
