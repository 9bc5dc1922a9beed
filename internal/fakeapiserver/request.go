package fakeapiserver

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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
	Header http.Header // what a proxy may pass on or add; see keptHeaders
	// get, list, watch, create, update, patch, delete, deletecollection; empty for what names no
	// resource
	Verb string
	GVR  schema.GroupVersionResource
}

// proof reports whether the request is a watch that only wants a bookmark soon: signal i of W-211.
func (r *Request) proof() bool {
	n, err := strconv.Atoi(r.Query.Get("timeoutSeconds"))
	return r.Verb == "watch" && err == nil && n > 0 && n <= proofSeconds
}

// proofSeconds is the longest timeoutSeconds of a watch that counts as a proof.
const proofSeconds = 5

// Count counts watches by class.
type Count struct {
	Long  int
	Proof int // timeoutSeconds of 1 to 5
}

func (c *Count) add(proof bool) {
	if proof {
		c.Proof++
	} else {
		c.Long++
	}
}

// maxRequests is how many requests are remembered.
const maxRequests = 10_000

var keptHeaders = []string{"Accept", "Accept-Encoding", "Audit-Id", "Authorization", "Connection", "Content-Type",
	"Forwarded", "Origin",
	"Traceparent", "Tracestate", "Upgrade", "User-Agent", "Via"}

func keepHeader(name string) bool {
	return slices.Contains(keptHeaders, name) || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-")
}

// record logs a request and counts it.
func (s *Server) record(r *http.Request, verb string, t *table) *Request {
	seen := Request{
		At: time.Now(), Remote: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: http.Header{},
		Verb: verb,
	}
	for name, values := range r.Header {
		if keepHeader(name) {
			seen.Header[name] = slices.Clone(values)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t != nil {
		seen.GVR = t.kind.GVR
		switch verb {
		case "list":
			t.lists++
		case "watch":
			t.opened.add(seen.proof())
		}
	}
	if len(s.requests) == maxRequests {
		s.requests = slices.Clone(s.requests[maxRequests/10:])
	}
	s.requests = append(s.requests, seen)
	s.changedLocked()
	return &seen
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
		n.add(st.proof)
	}
	return n
}

// Await waits until cond is true, and asks it again after every request, write, fault, and
// beginning or end of a watch. The error is the context's, or net/http's ErrServerClosed after
// Close.
func (s *Server) Await(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		wake := s.wake
		s.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return http.ErrServerClosed
		}
	}
}
