// Package health answers probes: whether the process is alive, and whether it is ready.
//
// Invariant: alive means only that probes are answered, since a restart helps no other trouble;
// ready means that every check passes and that Drain has not been called. A check that reports a
// A Warning passes: what is wrong with the apiserver is no reason to take a replica out, since all
// replicas have the same one.
package health

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"spillway/internal/status"
)

// Check is one reason to send requests here or not. detail says how it stands, for people; err why
// the process is not ready, or a Warning. It is called on every probe, by several goroutines at
// once, and must not block.
type Check func() (detail string, err error)

// Warning is what is out of order and yet no reason to be unready.
type Warning string

func (n Warning) Error() string { return string(n) }

// Checks collects checks by name and answers probes in the words of kube-apiserver.
type Checks struct {
	mu       sync.Mutex
	first    *namedCheck  // until it passes, the others are not called; nil: they always are
	checks   []namedCheck // as registered
	remarks  []func() []string
	draining bool
}

type namedCheck struct {
	name  string
	ready Check
}

var errDraining = errors.New("draining before the process ends")

// Require adds a check. It must be added before probes are served, or the process looks ready too
// early.
func (h *Checks) Require(name string, ready Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, namedCheck{name, ready})
}

// Precede adds the check before which all the others mean nothing.
func (h *Checks) Precede(name string, ready Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = &namedCheck{name, ready}
}

// Describe adds lines to what ?verbose shows.
func (h *Checks) Describe(lines func() []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remarks = append(h.remarks, lines)
}

// Ready is why the process is not ready, nil if it is.
func (h *Checks) Ready() error {
	for _, c := range h.snapshot() {
		if _, err := c.ready(); err != nil && !errors.As(err, new(Warning)) {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// Drain turns Check off for good, so that no new clients are sent here.
func (h *Checks) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

func (h *Checks) snapshot() []namedCheck {
	h.mu.Lock()
	defer h.mu.Unlock()
	draining := h.draining
	shutdown := func() (string, error) {
		if draining {
			return "", errDraining
		}
		return "", nil
	}
	all := []namedCheck{{"shutdown", shutdown}}
	if h.first != nil {
		all = append(all, *h.first)
		if _, err := h.first.ready(); err != nil {
			return all
		}
	}
	return append(all, h.checks...)
}

// ServeLive answers GET /livez.
func (h *Checks) ServeLive(w http.ResponseWriter, r *http.Request) {
	ping := func() (string, error) { return "", nil }
	report(w, r, "livez", []namedCheck{{"ping", ping}}, nil)
}

// ServeReady answers GET /readyz.
func (h *Checks) ServeReady(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	remarks := h.remarks
	h.mu.Unlock()
	report(w, r, "readyz", h.snapshot(), remarks)
}

// report answers 200 and "ok", or 500 and the list of checks; ?verbose asks for the list in any
// case.
func report(w http.ResponseWriter, r *http.Request, endpoint string, checks []namedCheck, remarks []func() []string) {
	var list strings.Builder
	failed := false
	for _, c := range checks {
		detail, err := c.ready()
		switch {
		case errors.As(err, new(Warning)):
			fmt.Fprintf(&list, "[!]%s: %s\n", c.name, status.OneLine(err.Error()))
		case err != nil:
			failed = true
			fmt.Fprintf(&list, "[-]%s failed: %s\n", c.name, status.OneLine(err.Error()))
		case detail != "":
			fmt.Fprintf(&list, "[+]%s ok: %s\n", c.name, status.OneLine(detail))
		default:
			fmt.Fprintf(&list, "[+]%s ok\n", c.name)
		}
	}
	verbose := r.URL.Query().Has("verbose")
	if failed || verbose {
		for _, lines := range remarks {
			for _, line := range lines() {
				fmt.Fprintln(&list, line)
			}
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", list.String(), endpoint)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", list.String(), endpoint)
	default:
		fmt.Fprint(w, "ok")
	}
}
