package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

const (
	// credentialTimeout is how long a request, or a handshake, waits for a credential plugin.
	credentialTimeout = 5 * time.Second
	// credentialCalls is how many of them may be in client-go's hands at a time, and so how many
	// goroutines a plugin that hangs can hold.
	credentialCalls = 16
)

// CredentialError says that the proxy's own credentials could not be had, so that nothing of a
// request was sent.
type CredentialError struct {
	Plugin string // the command of an exec plugin, or the name of an auth provider
	Err    error  // what it failed with; nil: it does not answer
}

// Error implements error.
func (e *CredentialError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the credential plugin %s failed: %s", e.Plugin, OneLine(e.Err))
	}
	return fmt.Sprintf("the credential plugin %s has not answered within %s", e.Plugin, credentialTimeout)
}

// Unwrap is what the plugin failed with.
func (e *CredentialError) Unwrap() error { return e.Err }

// Timeout reports that the plugin does not answer; it may later.
func (e *CredentialError) Timeout() bool { return e.Err == nil }

// NeverSent reports that no byte of the request was sent.
func (*CredentialError) NeverSent() bool { return true }

// plugin is what client-go calls for the credentials of a Factory: an exec plugin or an auth
// provider. client-go runs it under a lock and without a context, for as long as it takes. So each
// call of client-go's that may run it is made in a goroutine of its own, of which there are
// credentialCalls at most, and no request waits for one longer than credentialTimeout.
type plugin struct {
	// Static after construction.
	name  string
	log   *zap.Logger
	calls chan struct{} // holds one for each call under way

	mu      sync.Mutex
	under   int       // calls under way
	moved   time.Time // when the first of them began, or the last one ended
	trouble *CredentialError
	since   time.Time // of trouble
}

// newPlugin is the plugin of a configuration; nil: it has none.
func newPlugin(cfg *rest.Config, log *zap.Logger) *plugin {
	p := &plugin{log: log, calls: make(chan struct{}, credentialCalls)}
	switch {
	case cfg.AuthProvider != nil:
		p.name = cfg.AuthProvider.Name
	case cfg.ExecProvider != nil && !hasToken(cfg) && cfg.Username == "" && !hasPair(cfg): // else client-go runs none
		p.name = cfg.ExecProvider.Command
	default:
		return nil
	}
	return p
}

// begin begins a call. It waits until fewer than credentialCalls are under way, for
// credentialTimeout at most, and not at all while none of them has moved for as long.
func (p *plugin) begin(ctx context.Context) error {
	if p.hangs() {
		return p.hung()
	}
	timer := time.NewTimer(credentialTimeout)
	defer timer.Stop()
	select {
	case p.calls <- struct{}{}:
	case <-timer.C:
		return p.hung()
	case <-ctx.Done():
		return p.left(ctx)
	}
	p.began()
	return nil
}

// tryBegin begins a call if none has to be waited for.
func (p *plugin) tryBegin() bool {
	select {
	case p.calls <- struct{}{}:
		p.began()
		return true
	default:
		return false
	}
}

func (p *plugin) began() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.under == 0 {
		p.moved = time.Now()
	}
	p.under++
}

// end ends a call, however it came out: err is what the plugin failed with.
func (p *plugin) end(err error) {
	<-p.calls
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under--
	p.moved = time.Now()
	if err != nil {
		p.troubledLocked(&CredentialError{p.name, err})
		return
	}
	if p.trouble != nil {
		p.log.Info("the credential plugin answers again", zap.String("plugin", p.name),
			zap.Duration("after", time.Since(p.since).Round(time.Millisecond)))
		p.trouble = nil
	}
}

// hangs reports that calls are under way and none has ended for credentialTimeout.
func (p *plugin) hangs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.under > 0 && time.Since(p.moved) >= credentialTimeout
}

// hung is the error of a request that has waited for too long, or found that others have.
func (p *plugin) hung() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := &CredentialError{Plugin: p.name}
	p.troubledLocked(err)
	return err
}

// left is the error of a request whose context ended while it waited. One that reached its deadline
// says why.
func (p *plugin) left(ctx context.Context) error {
	if p.hangs() {
		return p.hung()
	}
	return context.Cause(ctx)
}

// troubledLocked notes and logs why there are no credentials, once for each kind of trouble.
func (p *plugin) troubledLocked(err *CredentialError) {
	if p.trouble == nil {
		p.since = time.Now()
		if err.Timeout() {
			p.since = p.moved
		}
	}
	if p.trouble == nil || p.trouble.Timeout() != err.Timeout() {
		p.log.Warn("no credentials for the apiserver: only requests that bring their own reach it",
			zap.String("plugin", p.name), zap.Error(err))
	}
	p.trouble = err
}

// CredentialTrouble is why the proxy's own credentials cannot be had at present, and since when;
// nil: they can, or nothing is known of it.
func (f *Factory) CredentialTrouble() (since time.Time, err error) {
	if f.plugin == nil {
		return time.Time{}, nil
	}
	f.plugin.mu.Lock()
	defer f.plugin.mu.Unlock()
	if f.plugin.trouble == nil {
		return time.Time{}, nil
	}
	return f.plugin.since, f.plugin.trouble
}

// certificate bounds a callback for a client certificate, which may run the plugin.
func (p *plugin) certificate(get certificateFunc) certificateFunc {
	type result struct {
		pair *tls.Certificate
		err  error
	}
	return func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		ctx := request.Context()
		if err := p.begin(ctx); err != nil {
			return nil, err
		}
		done := make(chan result, 1)
		go func() {
			pair, err := get(request)
			p.end(err)
			done <- result{pair, err}
		}()
		timer := time.NewTimer(credentialTimeout)
		defer timer.Stop()
		select {
		case r := <-done:
			return r.pair, r.err
		case <-timer.C:
			return nil, p.hung()
		case <-ctx.Done():
			return nil, p.left(ctx)
		}
	}
}

type certificateFunc = func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// patientTransport sends requests through client-go's wrappers, which add what the plugin says, and
// does not wait for them for longer than plugin allows.
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
	if err := t.plugin.begin(ctx); err != nil {
		closeBody(r)
		return nil, err
	}
	a := &attempt{plugin: t.plugin, sending: make(chan struct{}), done: make(chan answered, 1)}
	// The wrappers change the header, and may do so after the caller has its answer.
	wrapped := r.Clone(context.WithValue(ctx, attemptKey{}, a))
	go a.run(t.wrappers, wrapped)
	timer := time.NewTimer(credentialTimeout)
	defer timer.Stop()
	select {
	case <-a.sending: // from here on ctx is heeded
	case answer := <-a.done:
		return answer.response, answer.err
	case <-timer.C:
		if a.leave() {
			closeBody(r)
			return nil, t.plugin.hung()
		}
	case <-ctx.Done():
		if a.leave() {
			closeBody(r)
			return nil, t.plugin.left(ctx)
		}
	}
	answer := <-a.done
	return answer.response, answer.err
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
	sending chan struct{} // closed when it leaves the wrappers for upstream
	done    chan answered // the answer, which comes once

	mu       sync.Mutex
	sent     bool // it has left for upstream
	gone     bool // its caller has
	settled  bool // done has its answer
	underway bool // a call of the plugin's is; see plugin.begin
}

type answered struct {
	response *http.Response
	err      error
}

type attemptKey struct{}

// run sends the request and ends the calls of the plugin that this makes.
func (a *attempt) run(wrappers http.RoundTripper, r *http.Request) {
	a.underway = true               // begun by the caller
	_, err := wrappers.RoundTrip(r) //nolint:bodyclose // the caller has it from sendingTransport
	a.mu.Lock()
	sent := a.sent
	a.mu.Unlock()
	if a.underway {
		failure := err
		if sent {
			failure = nil // of a renewal after 401, which client-go logs
		}
		a.plugin.end(failure)
	}
	if !sent && err != nil {
		err = &CredentialError{a.plugin.name, err}
	}
	a.settle(answered{nil, err})
}

// settle gives the caller its answer, unless it has one.
func (a *attempt) settle(answer answered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.settled {
		a.settled = true
		a.done <- answer
	}
}

// leave reports that the caller has left before anything was sent: nothing will be.
func (a *attempt) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = !a.sent && !a.settled
	return a.gone
}

// send reports that the request is to be sent.
func (a *attempt) send() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.gone {
		a.sent = true
		close(a.sending)
	}
	return a.sent
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
	a.underway = false
	t.plugin.end(nil)
	if !a.send() {
		return nil, context.Canceled // its caller has another error
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		a.settle(answered{nil, err})
		return nil, err
	}
	head := &http.Response{StatusCode: response.StatusCode, Header: response.Header.Clone(), Body: http.NoBody, Request: r}
	refused := response.StatusCode == http.StatusUnauthorized
	if refused && t.plugin.tryBegin() {
		a.underway = true
	} else if refused {
		head.StatusCode = http.StatusOK // others renew them
	}
	a.settle(answered{response, nil})
	return head, nil
}
