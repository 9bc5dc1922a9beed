// Package health answers probes: whether the process is alive, and whether it is ready.
//
// Invariant: alive means only that probes are answered, because a restart helps no other trouble;
// ready means that every check passes and that Drain has not been called. A check that returns a
// Warning passes: trouble with the API server is no reason to take a replica out, because all
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

func (w Warning) Error() string { return string(w) }

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
	check Check
}

var errDraining = errors.New("draining before the process ends")

// Require adds a check. It must be added before probes are served, or the process looks ready too
// early.
func (h *Checks) Require(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, namedCheck{name, check})
}

// Precede adds the check without which the others mean nothing: they are called once it passes.
func (h *Checks) Precede(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = &namedCheck{name, check}
}

// Describe adds lines to what ?verbose shows.
func (h *Checks) Describe(lines func() []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remarks = append(h.remarks, lines)
}

// Ready is why the process is not ready, nil if it is.
func (h *Checks) Ready() error {
	for _, c := range h.due() {
		if _, err := c.check(); err != nil && !isWarning(err) {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func isWarning(err error) bool { return errors.As(err, new(Warning)) }

// Drain makes the process unready for good, so that no new clients are sent here.
func (h *Checks) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

func (h *Checks) checkShutdown() (detail string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return "", errDraining
	}
	return "", nil
}

// due are the checks that are to be called.
func (h *Checks) due() []namedCheck {
	h.mu.Lock()
	first, others := h.first, h.checks
	h.mu.Unlock()
	due := []namedCheck{{"shutdown", h.checkShutdown}}
	if first != nil {
		due = append(due, *first)
		if _, err := first.check(); err != nil {
			return due
		}
	}
	return append(due, others...)
}

// ServeLive answers GET /livez.
func (h *Checks) ServeLive(w http.ResponseWriter, r *http.Request) {
	ping := func() (string, error) { return "", nil }
	answerProbe(w, r, "livez", []namedCheck{{"ping", ping}}, nil)
}

// ServeReady answers GET /readyz.
func (h *Checks) ServeReady(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	remarks := h.remarks
	h.mu.Unlock()
	answerProbe(w, r, "readyz", h.due(), remarks)
}

// answerProbe answers 200 and "ok", or 500 and the list of checks. ?verbose requests the list in
// any case.
func answerProbe(w http.ResponseWriter, r *http.Request, endpoint string, checks []namedCheck,
	remarks []func() []string) {
	var list strings.Builder
	failed := false
	for _, c := range checks {
		line, ok := c.call()
		failed = failed || !ok
		fmt.Fprintln(&list, line)
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

// call runs the check and says in a line how it went, and whether it passed.
func (c namedCheck) call() (line string, passed bool) {
	detail, err := c.check()
	switch {
	case err != nil && isWarning(err):
		return fmt.Sprintf("[!]%s: %s", c.name, status.OneLine(err.Error())), true
	case err != nil:
		return fmt.Sprintf("[-]%s failed: %s", c.name, status.OneLine(err.Error())), false
	case detail != "":
		return fmt.Sprintf("[+]%s ok: %s", c.name, status.OneLine(detail)), true
	}
	return fmt.Sprintf("[+]%s ok", c.name), true
}
