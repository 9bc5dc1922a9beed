package transport

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// patientTransport sends requests through client-go's wrappers, which add what the plugin says. It
// waits for the wrappers no longer than the plugin allows:
//
//	patientTransport ──goroutine──▶ wrappers, which may run the plugin ──▶ sendingTransport ──▶ next
//	    waits ◀───────────────────────────────── attempt ───────────────────────┘
type patientTransport struct {
	plugin   *plugin
	wrappers http.RoundTripper // client-go's, which end at a sendingTransport
	next     http.RoundTripper // below these
}

// newPatientTransport puts client-go's wrappers around next.
func newPatientTransport(p *plugin, wrap func(http.RoundTripper) (http.RoundTripper, error), next http.RoundTripper) (
	*patientTransport, error) {
	wrappers, err := wrap(sendingTransport{p, next})
	return &patientTransport{p, wrappers, next}, err
}

// RoundTrip implements http.RoundTripper.
func (t *patientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" { // which the wrappers keep
		return t.wrappers.RoundTrip(r)
	}
	ctx := r.Context()
	if err := t.plugin.beginCall(ctx); err != nil {
		closeBody(r)
		return nil, err
	}
	a := &attempt{plugin: t.plugin, sending: make(chan struct{}), answer: make(chan answer, 1)}
	// The wrappers change the header, and may do so after the caller has its answer.
	wrapped := r.Clone(context.WithValue(ctx, attemptKey{}, a))
	go a.run(t.wrappers, wrapped)
	timer := time.NewTimer(credentialTimeout)
	defer timer.Stop()
	select {
	case <-a.sending: // from here on ctx is heeded
	case came := <-a.answer:
		return came.response, came.err
	case <-timer.C:
		if a.settle(abandoned) == abandoned {
			closeBody(r)
			return nil, t.plugin.recordHang()
		}
	case <-ctx.Done():
		if a.settle(abandoned) == abandoned {
			closeBody(r)
			return nil, t.plugin.errorOf(ctx)
		}
	}
	came := <-a.answer
	return came.response, came.err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *patientTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// attempt is one request on its way through client-go's wrappers.
type attempt struct {
	plugin  *plugin
	sending chan struct{} // closed when the request leaves the wrappers for upstream
	answer  chan answer   // the caller's, one at most

	hasCall bool // a call of the plugin's is under way for it; of the goroutine of run alone

	mu      sync.Mutex
	outcome outcome
}

type answer struct {
	response *http.Response
	err      error
}

type attemptKey struct{}

// outcome is how the preparation of an attempt came out.
type outcome int

const (
	undecided outcome = iota // the wrappers wait for credentials
	sent                     // the request has left for upstream, whose answer the caller gets
	abandoned                // the caller has left: nothing will be sent
	failed                   // nothing was sent, and the caller gets the wrappers' error
)

// settle sets the outcome, unless there is one already, and returns it.
func (a *attempt) settle(as outcome) outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outcome == undecided {
		a.outcome = as
	}
	return a.outcome
}

// run sends the request and ends the calls of the plugin that this makes.
func (a *attempt) run(wrappers http.RoundTripper, r *http.Request) {
	a.hasCall = true                // begun by the caller
	_, err := wrappers.RoundTrip(r) //nolint:bodyclose // the caller has it from sendingTransport
	came := a.settle(failed)
	if a.hasCall {
		failure := err
		if came == sent {
			failure = nil // of a renewal after 401, which client-go logs
		}
		a.plugin.endCall(failure)
	}
	if came != failed {
		return
	}
	if err != nil {
		err = &CredentialError{a.plugin.name, err}
	}
	a.answer <- answer{nil, err}
}

// sendingTransport is where client-go's wrappers end: the credentials have been had.
type sendingTransport struct {
	plugin *plugin
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper. The caller of patientTransport has the answer at once;
// the wrappers get a copy of it, by which they renew credentials that were not accepted.
func (t sendingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, _ := r.Context().Value(attemptKey{}).(*attempt)
	if a == nil {
		return t.next.RoundTrip(r)
	}
	a.hasCall = false
	t.plugin.endCall(nil)
	if a.settle(sent) != sent {
		return nil, context.Canceled // its caller has another error
	}
	close(a.sending)
	response, err := t.next.RoundTrip(r)
	if err != nil {
		a.answer <- answer{nil, err}
		return nil, err
	}
	head := &http.Response{StatusCode: response.StatusCode, Header: response.Header.Clone(), Body: http.NoBody, Request: r}
	if response.StatusCode == http.StatusUnauthorized {
		a.hasCall = t.plugin.tryBeginCall()
		if !a.hasCall {
			head.StatusCode = http.StatusOK // others renew them
		}
	}
	a.answer <- answer{response, nil}
	return head, nil
}
