// Package check tests an installation as a client: whether Spillway is reachable, trusted and
// passes requests through, knows the client's user, and serves from memory. It sends requests that
// any client may send, and gets nothing that another client would not get.
//
// Invariant: each check prints one line, also after another has failed, and a failure has a remedy.
// Only if the name in --server cannot be resolved, the first check is the last one.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"spillway/internal/status"
)

// Checker runs the checks.
type Checker struct {
	Server Endpoint
	Health *Endpoint // the metrics listener; nil: it is not checked

	// Patience is how long connections may be refused at first; 0: not at all. A Service refuses
	// them until each node knows of its pods, which is a moment after they are ready.
	Patience time.Duration
}

// check is one request, and what to print of a good answer.
type check struct {
	name string
	run  func(context.Context) (result string, err error)
}

// checkRun is one run of the checks, with what a check has found out for later ones.
type checkRun struct {
	*Checker
	out            *lines
	marking        marking
	hasNamedFaults bool // Health named what is wrong
}

// silence is the time without an answer after which a check says that it waits.
const silence = 2 * time.Second

// lines writes one line for each print, by several goroutines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) print(outcome, name, text string) {
	if name != "" {
		name += ": "
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.to, "%-7s %s%s\n", outcome, name, status.Printable(text))
}

// marking says whether the API server marks its own answers: their header has flowSchemaHeader.
type marking int

const (
	markingUnknown marking = iota // /version failed
	marksNone
	marksOwn
)

// Run runs all checks: health and readiness; with a token or a resource, the version of the API
// server; with a token, its user; with Health, what the proxy says of itself; a list of each
// resource from memory. It writes a line for each to out. The error says how many failed.
func (c *Checker) Run(ctx context.Context, resources []string, out io.Writer) error {
	run := &checkRun{Checker: c, out: &lines{to: out}}
	checks := run.checks(resources)
	failed := 0
	for _, one := range checks {
		late := time.AfterFunc(silence, func() {
			run.out.print("waits", one.name, fmt.Sprintf("no answer yet, for at most %s", answerTimeout))
		})
		result, cause := one.run(ctx)
		late.Stop()
		if origin := (*unknownOriginError)(nil); errors.As(cause, &origin) {
			run.out.print("unknown", one.name, origin.Error())
			continue
		}
		if cause == nil {
			run.out.print("ok", one.name, result)
			continue
		}
		failed++
		run.out.print("FAILED", one.name, cause.Error())
		if unresolved := (*lookupError)(nil); errors.As(cause, &unresolved) && unresolved.server == &c.Server {
			run.out.print("", "", "so no other request is sent")
			break
		}
	}
	if failed > 0 {
		return &FailedError{fmt.Sprintf("%s: %d of %d checks failed", c.Server.Base, failed, len(checks))}
	}
	return nil
}

// FailedError says how many checks failed, whose lines are printed.
type FailedError struct{ text string }

func (e *FailedError) Error() string { return e.text }

func (r *checkRun) checks(resources []string) []check {
	all := []check{{"/livez", r.awaitLive}, {"/readyz", r.Server.readReady}}
	if r.Server.Token != "" || len(resources) > 0 {
		all = append(all, check{"/version", r.readVersion})
	}
	if r.Server.Token != "" {
		all = append(all, check{"user", r.Server.readUser})
	}
	if r.Health != nil { // after requests that may cause a review, whose outcome it has
		all = append(all, check{"/readyz?verbose", r.readHealth})
	}
	for _, resource := range resources {
		all = append(all, check{"LIST " + resource, func(ctx context.Context) (string, error) {
			return r.list(ctx, resource)
		}})
	}
	return all
}

// refusedPause is the time between two connections while they are refused.
const refusedPause = 200 * time.Millisecond

// awaitLive probes /livez, and repeats that while connections are refused, for Patience. It prints
// that it waits.
func (r *checkRun) awaitLive(ctx context.Context) (string, error) {
	isWaiting := false
	for began := time.Now(); ; {
		result, err := r.Server.probe(ctx, "/livez")
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) >= r.Patience {
			return result, err
		}
		if !isWaiting {
			isWaiting = true
			r.out.print("waits", "/livez", fmt.Sprintf("%s refuses connections: trying for %s", r.Server.Base.Host, r.Patience))
		}
		select {
		case <-time.After(refusedPause):
		case <-ctx.Done():
			return result, err
		}
	}
}

func (r *checkRun) readVersion(ctx context.Context) (string, error) {
	var v struct{ GitVersion string }
	header, err := r.Server.get(ctx, "/version", &v)
	if err != nil {
		return "", err
	}
	if v.GitVersion == "" {
		return "", errors.New("the answer names no version: is --server a spillway?")
	}
	r.marking = marksNone
	if header.Get(flowSchemaHeader) != "" {
		r.marking = marksOwn
	}
	return v.GitVersion, nil
}

// readHealth reads what the proxy says of itself. A fault that does not end by itself is an error:
// a failed check, a file that cannot be used, a mirror that upstream refuses, reviews that upstream
// does not answer.
func (r *checkRun) readHealth(ctx context.Context) (string, error) {
	faults, err := r.Health.readFaults(ctx)
	if err != nil {
		return "", err
	}
	if len(faults) > 0 {
		r.hasNamedFaults = true
		return "", errors.New(strings.Join(faults, "; "))
	}
	return "nothing is wrong", nil
}

// cheapQuery asks for a state of any age, which takes no more than memory, and selects a name that
// most likely nothing has. So the list costs as little in a large cluster as in a small one.
const cheapQuery = "?resourceVersion=0&fieldSelector=metadata.name%3Dspillway-check"

// flowSchemaHeader is in the API server's own answers, if it has priority and fairness, and in no
// answer that was made from memory.
const flowSchemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"

// list lists a resource, which must come from memory.
func (r *checkRun) list(ctx context.Context, resource string) (string, error) {
	path, err := r.Server.listPath(ctx, resource)
	if err != nil {
		return "", r.explainRefusal(ctx, resource, err)
	}
	var l struct {
		Metadata struct{ ResourceVersion string }
	}
	header, err := r.Server.get(ctx, path+cheapQuery, &l)
	version := "at resourceVersion " + l.Metadata.ResourceVersion
	isUpstreams := header.Get(flowSchemaHeader) != ""
	switch {
	case err != nil:
		return "", r.explainRefusal(ctx, resource, err)
	case l.Metadata.ResourceVersion == "":
		return "", errors.New("the answer is no list: is --server a spillway?")
	case isUpstreams && r.hasNamedFaults:
		return "", errors.New("not from memory but from the API server: /readyz?verbose, above, says why")
	case isUpstreams:
		return "", fmt.Errorf("not from memory but from the API server: have --resources of that spillway name %s, let it "+
			"get, list and watch them, and let it send reviews (system:auth-delegator); /readyz?verbose on its "+
			"--metrics-listen says which of these is missing", resource)
	case r.marking == markingUnknown:
		return "", &unknownOriginError{version, "/version failed"}
	case r.marking == marksNone:
		return "", &unknownOriginError{version, "the API server marks none of its own answers (it is without priority and " +
			"fairness)"}
	}
	return "from memory, " + version, nil
}

// explainRefusal adds to the refusal of a list what is known of its cause.
func (r *checkRun) explainRefusal(ctx context.Context, resource string, err error) error {
	var refusal *refusalError
	if r.hasNamedFaults && r.Server.Token != "" && errors.As(err, &refusal) && refusal.code == http.StatusForbidden {
		refusal.remedy = "if the token is Spillway's own, /readyz?verbose, above, names the missing role; otherwise " +
			refusal.remedy
	}
	return r.Server.explainUnknown(ctx, resource, err)
}

// unknownOriginError says that a list is answered, and why its origin is unknown.
type unknownOriginError struct{ version, why string }

func (e *unknownOriginError) Error() string {
	return e.version + ", but maybe not from memory, because " + e.why
}
