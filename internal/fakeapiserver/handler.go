package fakeapiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The verbs that are served (W-22). verbNone is of any other request.
const (
	verbNone  = ""
	verbGet   = "get"
	verbList  = "list"
	verbWatch = "watch"
)

var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// Handle serves a path prefix with a handler of the test's own: reviews, logs, upgrades, writes,
// aggregated APIs.
func (s *Server) Handle(prefix string, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[prefix] = h
}

// handlerOf is the handler of the longest prefix of a path, nil if there is none.
func (s *Server) handlerOf(path string) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := ""
	for prefix := range s.handlers {
		if strings.HasPrefix(path, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return s.handlers[longest]
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setCommonHeaders(w, r)
	if s.opts.Warning != "" {
		w.Header().Set("Warning", `299 - "`+s.opts.Warning+`"`)
	}
	if h := s.handlerOf(r.URL.Path); h != nil {
		s.record(r, verbNone, nil)
		h.ServeHTTP(w, r)
		return
	}
	if slices.Contains(healthPaths, r.URL.Path) {
		s.record(r, verbNone, nil)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		writePlain(w, http.StatusOK, "ok")
		return
	}
	if answer := s.discovery(r.URL.Path); answer != nil {
		s.record(r, verbNone, nil)
		s.respond(w, r, http.StatusOK, mustJSON(answer))
		return
	}
	if err := s.serveResource(w, r); err != nil {
		writeError(w, r, err)
	}
}

// serveResource answers a request that names a resource. After an error nothing has been written.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) error {
	at, err := s.locate(r.URL.Path)
	if err != nil {
		s.record(r, verbNone, nil)
		return err
	}
	verb := verbOf(r, at)
	s.record(r, verb, at.table)
	if verb != verbWatch {
		timeout, err := timeoutOf(r)
		if err != nil { // before the resource is looked at (W-30)
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	if text := at.table.kind.Deprecated; text != "" {
		w.Header().Add("Warning", `299 - "`+text+`"`) // W-4
	}
	if err := s.injectFault(r, verb); err != nil {
		return err
	}
	switch verb {
	case verbGet:
		return s.serveGet(w, r, at)
	case verbList:
		return s.serveList(w, r, at)
	case verbWatch:
		return s.serveWatch(w, r, at)
	}
	if s.opts.Writes {
		return s.serveWrite(w, r, at)
	}
	return methodNotAllowed()
}

// verbOf names what a request wants (W-22, W-23).
func verbOf(r *http.Request, at target) string {
	get := r.Method == http.MethodGet || r.Method == http.MethodHead && at.table.kind.Custom
	switch {
	case !get || at.subresource != "" && at.subresource != "status":
		return verbNone
	case at.name != "":
		return verbGet
	case isWatch(r.URL.Query()):
		return verbWatch
	}
	return verbList
}

// timeoutOf is how long a request that is no watch may take (W-28).
func timeoutOf(r *http.Request) (time.Duration, error) {
	asked := r.URL.Query().Get("timeout")
	if asked == "" {
		return requestTimeout, nil
	}
	d, err := time.ParseDuration(asked)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	if d <= 0 || d > requestTimeout {
		d = requestTimeout
	}
	return d, nil
}
