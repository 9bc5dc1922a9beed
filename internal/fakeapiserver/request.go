package fakeapiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is one request as it arrived.
type Request struct {
	At     time.Time
	Remote string // the client's address: equal addresses are one connection
	Method string
	Path   string
	Query  url.Values
	Header http.Header // what a proxy may pass on or add; see isKept
	Verb   string      // get, list or watch; empty for any other
	GVR    schema.GroupVersionResource
}

// Count counts watches by class.
type Count struct {
	Long  int
	Proof int // timeoutSeconds of 1 to 5
}

func (c *Count) add(isProof bool) {
	if isProof {
		c.Proof++
	} else {
		c.Long++
	}
}

// requestsLimit is how many requests are remembered. One more drops the oldest tenth.
const requestsLimit = 10_000

var keptHeaders = []string{"Accept", "Accept-Encoding", "Audit-Id", "Authorization", "Connection", "Content-Type",
	"Forwarded", "Origin", "Traceparent", "Tracestate", "Upgrade", "User-Agent", "Via"}

// isKept reports that a header is remembered.
func isKept(name string) bool {
	return slices.Contains(keptHeaders, name) || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-")
}

// record remembers a request and counts it at the table of its resource, if it has one.
func (s *Server) record(r *http.Request, verb string, t *table) {
	seen := Request{
		At: time.Now(), Remote: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
		Header: http.Header{}, Verb: verb,
	}
	for name, values := range r.Header {
		if isKept(name) {
			seen.Header[name] = slices.Clone(values)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t != nil {
		seen.GVR = t.kind.GVR
		switch verb {
		case verbList:
			t.lists++
		case verbWatch:
			t.opened.add(isProof(seen.Query))
		}
	}
	if len(s.requests) == requestsLimit {
		s.requests = slices.Clone(s.requests[requestsLimit/10:])
	}
	s.requests = append(s.requests, seen)
	s.changedLocked()
}

// Requests are the latest requests, at most 10,000, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// RequestsFor are the requests of one verb for one resource.
func (s *Server) RequestsFor(gvr schema.GroupVersionResource, verb string) []Request {
	return slices.DeleteFunc(s.Requests(), func(r Request) bool { return r.GVR != gvr || r.Verb != verb })
}

// Lists is how many LISTs of a resource arrived.
func (s *Server) Lists(gvr schema.GroupVersionResource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table(gvr).lists
}

// Watches is how many watches of a resource arrived.
func (s *Server) Watches(gvr schema.GroupVersionResource) Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table(gvr).opened
}

// OpenWatches is how many watches of a resource are open now.
func (s *Server) OpenWatches(gvr schema.GroupVersionResource) Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n Count
	for st := range s.table(gvr).streams {
		n.add(st.isProof)
	}
	return n
}
