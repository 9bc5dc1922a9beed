package fakeapiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Handle serves a path prefix with a handler of the test's own: reviews, logs, upgrades, aggregated
// APIs.
func (s *Server) Handle(prefix string, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra[prefix] = h
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	commonHeaders(w, r)
	if s.opts.Warning != "" {
		w.Header().Set("Warning", `299 - "`+s.opts.Warning+`"`)
	}
	if h := s.extraFor(r.URL.Path); h != nil {
		s.record(r, "", nil)
		h.ServeHTTP(w, r)
		return
	}
	if s.discover(w, r) {
		s.record(r, "", nil)
		return
	}
	at, notFound := s.locate(r.URL.Path)
	if notFound != nil {
		s.record(r, "", nil)
		notFound(w, r)
		return
	}
	verb := verbOf(r, at)
	seen := s.record(r, verb, at.table)
	timeout, err := s.timeout(r)
	if err != nil { // before the resource is looked at (W-30)
		writeError(w, r, err)
		return
	}
	if text := at.table.kind.Deprecated; text != "" {
		w.Header().Add("Warning", `299 - "`+text+`"`) // W-4
	}
	if verb == "watch" {
		s.watch(w, r, at, seen.proof())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	s.short(w, r.WithContext(ctx), at, verb)
}

// short answers everything but watches.
func (s *Server) short(w http.ResponseWriter, r *http.Request, at target, verb string) {
	switch verb {
	case "get", "list":
		if s.refuse(w, r, verb) || !s.passStall(w, r) {
			return
		}
	case "":
		writeError(w, r, methodNotAllowed())
		return
	}
	switch verb {
	case "get":
		s.serveGet(w, r, at)
	case "list":
		q, err := parseQuery(r, at, !s.kubernetesNow().NoWatchList)
		if err != nil {
			writeError(w, r, err)
			return
		}
		s.serveList(w, r, q)
	default:
		s.serveWrite(w, r, at, verb)
	}
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, at target, proof bool) {
	if s.refuse(w, r, "watch") || !s.stalled(r.Context(), AllReads) {
		return
	}
	q, err := parseQuery(r, at, !s.kubernetesNow().NoWatchList)
	if err != nil {
		writeError(w, r, err)
		return
	}
	s.serveWatch(w, r, q, proof)
}

// verbOf names what a request wants (W-22, W-23); "" is not allowed.
func verbOf(r *http.Request, at target) string {
	object := at.name != ""
	verbs := map[string][2]string{ // on a collection, on an object
		http.MethodGet:    {"list", "get"},
		http.MethodPost:   {"create", ""},
		http.MethodPut:    {"", "update"},
		http.MethodPatch:  {"", "patch"},
		http.MethodDelete: {"deletecollection", "delete"},
	}
	method := r.Method
	if method == http.MethodHead && at.table.kind.Custom {
		method = http.MethodGet
	}
	verb := verbs[method][0]
	if object {
		verb = verbs[method][1]
	}
	if at.subresource != "" && !(at.subresource == "status" && verb == "get") {
		return ""
	}
	if verb == "list" && isWatch(r.URL.Query()) {
		return "watch"
	}
	return verb
}

// refuse answers with the failure that the test wished for, if any.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, verb string) bool {
	s.mu.Lock()
	code := 0
	switch verb {
	case "list":
		if r.URL.Query().Get("limit") == "1" {
			code = s.faults.probes.next()
		}
		if code == 0 {
			code = s.faults.lists.next()
		}
	case "watch":
		code = s.faults.watches.next()
	}
	s.mu.Unlock()
	if code != 0 {
		writeError(w, r, wished(code))
	}
	return code != 0
}

// passStall waits while StallReads stops this read. False: the request timed out, or is over.
func (s *Server) passStall(w http.ResponseWriter, r *http.Request) bool {
	kind := AllReads
	if r.URL.Query().Get("resourceVersion") == "" {
		kind = ConsistentReads
	}
	if s.stalled(r.Context(), kind) {
		return true
	}
	requestTimeout(w)
	return false
}

// timeout is how long a request may take (W-28).
func (s *Server) timeout(r *http.Request) (time.Duration, error) {
	asked := r.URL.Query().Get("timeout")
	if asked == "" || isWatch(r.URL.Query()) {
		return s.opts.RequestTimeout, nil
	}
	d, err := time.ParseDuration(asked)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	if d <= 0 || d > s.opts.RequestTimeout {
		d = s.opts.RequestTimeout
	}
	return d, nil
}

// commonHeaders are those of every answer (W-3).
func commonHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	id := r.Header.Get("Audit-Id")
	if id == "" {
		id = uuid.NewString()
	}
	h.Set("Audit-Id", id)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Kubernetes-Pf-Flowschema-Uid", "a22ae54e-242e-4519-9662-9c709e88763b")
	h.Set("X-Kubernetes-Pf-Prioritylevel-Uid", "bae19c55-8562-4445-ab81-8eb25b15fc26")
}

func (s *Server) extraFor(path string) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := ""
	for prefix := range s.extra {
		if strings.HasPrefix(path, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return s.extra[longest]
}
