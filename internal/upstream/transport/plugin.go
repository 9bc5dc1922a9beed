package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

const (
	// credentialTimeout is how long a request, or a handshake, waits for a credential plugin.
	credentialTimeout = 5 * time.Second
	// pluginCallLimit is how many calls of the plugin may be in client-go's hands at a time, and so
	// how many goroutines a plugin that hangs can hold.
	pluginCallLimit = 16
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
// pluginCallLimit at most, and no request waits for one longer than credentialTimeout.
type plugin struct {
	name  string
	log   *zap.Logger
	slots chan struct{} // holds one element for each call

	mu           sync.Mutex
	calls        int              // under way
	progressAt   time.Time        // when the first of them began, or the last one ended
	trouble      *CredentialError // nil: none is known
	troubleSince time.Time
}

// newPlugin is the plugin of a configuration; nil: it has none.
func newPlugin(cfg *rest.Config, log *zap.Logger) *plugin {
	p := &plugin{log: log, slots: make(chan struct{}, pluginCallLimit)}
	switch {
	case cfg.AuthProvider != nil:
		p.name = cfg.AuthProvider.Name
	case cfg.ExecProvider != nil && !hasStaticCredentials(cfg):
		p.name = cfg.ExecProvider.Command
	default:
		return nil
	}
	return p
}

// beginCall waits until a slot is free, for credentialTimeout at most, and not at all while the
// plugin hangs. After nil the caller must call endCall.
func (p *plugin) beginCall(ctx context.Context) error {
	if p.isHanging() {
		return p.recordHang()
	}
	timer := time.NewTimer(credentialTimeout)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
	case <-timer.C:
		return p.recordHang()
	case <-ctx.Done():
		return p.errorOf(ctx)
	}
	p.countCall()
	return nil
}

// tryBeginCall is beginCall if a slot is free.
func (p *plugin) tryBeginCall() bool {
	select {
	case p.slots <- struct{}{}:
		p.countCall()
		return true
	default:
		return false
	}
}

func (p *plugin) countCall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == 0 {
		p.progressAt = time.Now()
	}
	p.calls++
}

// endCall ends a call, however it came out: err is what the plugin failed with.
func (p *plugin) endCall(err error) {
	<-p.slots
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
	p.progressAt = time.Now()
	if err != nil {
		p.recordTroubleLocked(&CredentialError{p.name, err})
		return
	}
	if p.trouble != nil {
		p.log.Info("the credential plugin answers again", zap.String("plugin", p.name),
			zap.Duration("after", time.Since(p.troubleSince).Round(time.Millisecond)))
		p.trouble = nil
	}
}

// isHanging reports that calls are under way and none has ended for credentialTimeout.
func (p *plugin) isHanging() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls > 0 && time.Since(p.progressAt) >= credentialTimeout
}

// recordHang is the error of a request that has waited for too long, or found that others have.
func (p *plugin) recordHang() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := &CredentialError{Plugin: p.name}
	p.recordTroubleLocked(err)
	return err
}

// errorOf is the error of a request whose context ended while it waited. One that reached its
// deadline says why.
func (p *plugin) errorOf(ctx context.Context) error {
	if p.isHanging() {
		return p.recordHang()
	}
	return context.Cause(ctx)
}

// recordTroubleLocked notes and logs why there are no credentials, once for each kind of trouble.
func (p *plugin) recordTroubleLocked(err *CredentialError) {
	if p.trouble == nil {
		p.troubleSince = time.Now()
		if err.Timeout() {
			p.troubleSince = p.progressAt
		}
	}
	if p.trouble == nil || p.trouble.Timeout() != err.Timeout() {
		p.log.Warn("no credentials for the API server: only requests that bring their own reach it",
			zap.String("plugin", p.name), zap.Error(err))
	}
	p.trouble = err
}

// currentTrouble is why there are no credentials, and since when; nil: none is known.
func (p *plugin) currentTrouble() (since time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble == nil {
		return time.Time{}, nil
	}
	return p.troubleSince, p.trouble
}

type certificateFunc = func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// boundCertificate bounds a callback for a client certificate, which may run the plugin.
func (p *plugin) boundCertificate(get certificateFunc) certificateFunc {
	type result struct {
		pair *tls.Certificate
		err  error
	}
	return func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		ctx := request.Context()
		if err := p.beginCall(ctx); err != nil {
			return nil, err
		}
		done := make(chan result, 1)
		go func() {
			pair, err := get(request)
			p.endCall(err)
			done <- result{pair, err}
		}()
		timer := time.NewTimer(credentialTimeout)
		defer timer.Stop()
		select {
		case r := <-done:
			return r.pair, r.err
		case <-timer.C:
			return nil, p.recordHang()
		case <-ctx.Done():
			return nil, p.errorOf(ctx)
		}
	}
}
