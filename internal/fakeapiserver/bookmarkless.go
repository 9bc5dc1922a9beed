package fakeapiserver

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// BookmarkFault says what a Bookmarkless does to bookmarks.
type BookmarkFault int

const (
	DropEndMarks  BookmarkFault = iota // the one that ends a watch-list's initial events
	DropInitial                        // all of a watch-list, whenever they come
	DropBookmarks                      // all of every watch
	CutAtEndMarks                      // the end mark and all that follows: the watch-list ends there
)

// Bookmarkless is a proxy in front of an API server that passes on everything but bookmarks, as
// access proxies do that know no such event.
func Bookmarkless(target *url.URL, transport http.RoundTripper, fault BookmarkFault) http.Handler {
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1}
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Accept-Encoding", "identity") // lines are to be read
	}
	proxy.ModifyResponse = func(r *http.Response) error {
		query := r.Request.URL.Query()
		if isWatch(query) && (fault == DropBookmarks || query.Get("sendInitialEvents") == "true") {
			r.Body = &withoutBookmarks{in: bufio.NewReader(r.Body), body: r.Body, fault: fault}
		}
		return nil
	}
	return proxy
}

// withoutBookmarks is a watch's body without its bookmarks.
type withoutBookmarks struct {
	in    *bufio.Reader
	body  io.Closer
	fault BookmarkFault
	line  []byte // what has not been read of the last line
	err   error  // after it
}

// Read implements io.Reader.
func (b *withoutBookmarks) Read(p []byte) (int, error) {
	for len(b.line) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.line, b.err = b.in.ReadBytes('\n')
		isBookmark := bytes.HasPrefix(b.line, []byte(`{"type":"BOOKMARK"`))
		isEndMark := isBookmark && bytes.Contains(b.line, []byte("initial-events-end"))
		switch b.fault {
		case CutAtEndMarks:
			if isEndMark {
				b.line, b.err = nil, io.EOF
			}
		case DropEndMarks:
			if isEndMark {
				b.line = nil
			}
		case DropInitial, DropBookmarks:
			if isBookmark {
				b.line = nil
			}
		}
	}
	n := copy(p, b.line)
	b.line = b.line[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *withoutBookmarks) Close() error { return b.body.Close() }
