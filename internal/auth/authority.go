package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/flowcontrol"
	"spillway/internal/rotation"
	"spillway/internal/tlsconn"
)

const (
	// authorityReloadInterval bounds how often a file is looked at.
	authorityReloadInterval = time.Second
	// verificationWait is how long a chain waits for its turn.
	verificationWait = 15 * time.Second
	// goodVerdictsLimit and badVerdictsLimit are how many verdicts are remembered. There is one for
	// each connection with a certificate, fewer where clients connect again.
	goodVerdictsLimit = 16 << 10
	badVerdictsLimit  = 1 << 10
	// verdictTTL is how long a verdict is remembered at most.
	verdictTTL = 24 * time.Hour
	// verdictTextBytes is how much is remembered of why a chain is bad. Errors of x509 hold the
	// certificates that they are about.
	verdictTextBytes = 256
)

// Authority is a PEM file of the certificates that may vouch for clients. It is read again when it
// is needed and a second has passed. So a rotated file counts for the next request, and for a
// running watch when it is checked. A file that cannot be read, as in the middle of a rotation,
// leaves in use what was read last, as in kube-apiserver.
//
// A verification takes some signatures. So a verdict is remembered for as long as the file and the
// clock leave it true, and few chains are verified at a time (verificationTurns).
type Authority struct {
	file  *rotation.Value[*rotation.Authorities]
	began time.Time // by both clocks, see DetectSetBack
	turns *flowcontrol.Gate

	mu       sync.Mutex
	verdicts verdicts // guarded by mu
}

// verdicts are those about chains under one content of an authority's file.
type verdicts struct {
	of        *rotation.Authorities
	good, bad *AnswerCache[struct{}]
}

// verificationTurns are those of all verifications. A processor is left to others, where there are
// two; an address has one turn at a time, and addresses take turns.
var verificationTurns = flowcontrol.NewGate(flowcontrol.Options{
	Limit: int64(max(1, runtime.GOMAXPROCS(0)-1)), Share: 1, Waiting: 2048, WaitingEach: 1024, Wait: verificationWait,
})

// errVerifying is why a chain has not been verified in time.
var errVerifying = fmt.Errorf("too many certificates are being verified: %w", ErrBusy)

// NewAuthority reads the file. There is no Authority without a certificate: the system's would
// verify for it.
func NewAuthority(file string, clock clock.PassiveClock, log *zap.Logger) (*Authority, error) {
	began := clock.Now()
	value, err := rotation.New(rotation.Options[*rotation.Authorities]{
		Use: "certificate authorities", Read: rotation.Files(file), Clock: clock, Log: log,
		Parse: func(parts []rotation.Part) (*rotation.Authorities, time.Time, error) {
			return rotation.ParseAuthorities(parts[0].Text)
		},
	})
	if err != nil {
		return nil, err
	}
	return &Authority{file: value, began: began, turns: verificationTurns}, nil
}

// States is how the file stands.
func (a *Authority) States() []rotation.FileState { return a.file.States() }

// current are the certificates that vouch at present.
func (a *Authority) current() []*x509.Certificate {
	return a.file.Recent(authorityReloadInterval).Certificates
}

// Shares reports that both have a certificate in common, so that the other may vouch for clients of
// the one as well.
func (a *Authority) Shares(other *Authority) bool {
	mine, others := a.current(), other.current()
	return slices.ContainsFunc(mine, func(c *x509.Certificate) bool { return slices.ContainsFunc(others, c.Equal) })
}

// Verify reports why a client's certificate, the first of a chain, is not vouched for at a moment.
// The others may stand between it and the authority. After the wall clock was set back, the chain
// must also be valid at the moment that the clock would show otherwise. flow shares the turns of
// verifications, and ctx ends the wait for one; without a turn the error is ErrBusy.
func (a *Authority) Verify(ctx context.Context, flow flowcontrol.Flow, chain Chain, now time.Time) error {
	if err := a.verifyAt(ctx, flow, chain, now); err != nil {
		return err
	}
	otherwise, isSetBack := DetectSetBack(a.began, now)
	if !isSetBack {
		return nil
	}
	if err := a.verifyAt(ctx, flow, chain, otherwise); err != nil {
		return fmt.Errorf("%w (the clock of this host was set back by %v since the proxy began: if it is right now, "+
			"restart the proxy)",
			err, otherwise.Sub(now.Round(0)).Round(time.Second))
	}
	return nil
}

// verifyAt is the verdict on a chain at a moment, remembered or from a verification.
func (a *Authority) verifyAt(ctx context.Context, flow flowcontrol.Flow, chain Chain, at time.Time) error {
	if err := tlsconn.CheckCount(len(chain.certificates)); err != nil { // listeners refuse it in the handshake
		return err
	}
	authorities := a.file.Recent(authorityReloadInterval)
	if verdict, ok := a.recall(authorities, chain, at); ok {
		return verdict.Err
	}
	turn, refused := a.turns.Admit(ctx, flow, 1)
	if refused != nil {
		return errVerifying
	}
	defer turn.Release()
	if verdict, ok := a.recall(authorities, chain, at); ok { // another request of the connection has had its turn
		return verdict.Err
	}
	err := chain.verify(authorities, at)
	if err != nil {
		text := err.Error()
		err = errors.New(text[:min(len(text), verdictTextBytes)])
	}
	a.note(authorities, chain, at, err)
	return err
}

// recall is the verdict on a chain, if one that is true at a moment is remembered.
func (a *Authority) recall(authorities *rotation.Authorities, chain Chain, at time.Time) (Answer[struct{}], bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verdicts.of != authorities {
		a.verdicts = verdicts{authorities, NewAnswerCache[struct{}](goodVerdictsLimit),
			NewAnswerCache[struct{}](badVerdictsLimit)}
	}
	for _, cache := range []*AnswerCache[struct{}]{a.verdicts.good, a.verdicts.bad} {
		if verdict, ok := cache.Recall(chain.digest, at); ok && at.After(verdict.At) {
			return verdict, true
		}
	}
	return Answer[struct{}]{}, false
}

// note remembers a verdict for the time around a moment in which it is true.
func (a *Authority) note(authorities *rotation.Authorities, chain Chain, at time.Time, err error) {
	since, until := unchangedPeriod(at, slices.Concat(chain.certificates, authorities.Certificates))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verdicts.of != authorities || !at.After(since) {
		return
	}
	cache := a.verdicts.good
	if err != nil {
		cache = a.verdicts.bad
	}
	cache.Note(chain.digest, Answer[struct{}]{Err: err, At: since}, until, at)
}

// unchangedPeriod is the time around a moment in which no certificate begins or ends, until
// verdictTTL after it.
func unchangedPeriod(at time.Time, certificates []*x509.Certificate) (since, until time.Time) {
	until = at.Add(verdictTTL)
	for _, c := range certificates {
		for _, moment := range []time.Time{c.NotBefore, c.NotAfter} {
			switch {
			case moment.After(until):
			case moment.After(at):
				until = moment
			case moment.After(since):
				since = moment
			}
		}
	}
	return since, until
}
