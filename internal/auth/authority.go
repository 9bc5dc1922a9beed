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
)

// Authority is a PEM file of the certificates that may vouch for clients. It is read again when it
// is needed and a second has passed, so that a rotated file counts for the next request, and for a
// running watch when it is checked. One that cannot be read, as in the middle of a rotation, leaves
// the one in use, as in kube-apiserver.
//
// A verification takes some signatures. So a verdict is remembered for as long as the file and the
// clock leave it true, and few chains are verified at a time (turns).
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

const (
	// goodVerdictsLimit and badVerdictsLimit are how many verdicts are remembered. There is one for
	// each connection with a certificate, fewer where clients connect again.
	goodVerdictsLimit = 16 << 10
	badVerdictsLimit  = 1 << 10
	// verdictTextBytes is how much is remembered of why a chain is bad. Errors of x509 hold the
	// certificates that they are about.
	verdictTextBytes = 256
	// verificationWait is how long a chain waits for its turn.
	verificationWait = 15 * time.Second
)

// turns are those of all verifications. A processor is left to others, where there are two; an
// address has one turn at a time, and addresses take turns.
var turns = flowcontrol.NewGate(flowcontrol.Options{
	Limit: int64(max(1, runtime.GOMAXPROCS(0)-1)), Share: 1, Waiting: 2048, WaitingEach: 1024, Wait: verificationWait,
})

// errVerifying is why a chain has not been verified in time.
var errVerifying = fmt.Errorf("too many certificates are being verified: %w", ErrBusy)

// reloadEvery bounds how often a file is looked at.
const reloadEvery = time.Second

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
	return &Authority{file: value, began: began, turns: turns}, nil
}

// States is how the file stands.
func (a *Authority) States() []rotation.FileState { return a.file.States() }

// current are the certificates that vouch at present.
func (a *Authority) current() []*x509.Certificate { return a.file.Recent(reloadEvery).Certificates }

// Shares reports that both have a certificate in common, so that the other may vouch for clients of
// the one as well.
func (a *Authority) Shares(other *Authority) bool {
	mine, others := a.current(), other.current()
	return slices.ContainsFunc(mine, func(c *x509.Certificate) bool { return slices.ContainsFunc(others, c.Equal) })
}

// Verify reports why a chain's first certificate is not vouched for, for a client, at a moment. The
// others may stand between. After the wall clock was set back, the chain must also be good at the
// moment that the clock would show otherwise. from shares the turns, and ctx ends the wait for one;
// without a turn the error is ErrBusy.
func (a *Authority) Verify(ctx context.Context, from flowcontrol.Flow, peer Chain, now time.Time) error {
	if err := a.verifyAt(ctx, from, peer, now); err != nil {
		return err
	}
	later, back := DetectSetBack(a.began, now)
	if !back {
		return nil
	}
	if err := a.verifyAt(ctx, from, peer, later); err != nil {
		return fmt.Errorf("%w (the clock of this host was set back by %v since the proxy began: if it is right now, "+
			"restart the proxy)",
			err, later.Sub(now.Round(0)).Round(time.Second))
	}
	return nil
}

// verifyAt is the verdict on a chain at a moment, remembered or from a verification.
func (a *Authority) verifyAt(ctx context.Context, from flowcontrol.Flow, peer Chain, at time.Time) error {
	if err := peer.check(); err != nil {
		return err
	}
	authorities := a.file.Recent(reloadEvery)
	if ok, err := a.recall(authorities, peer, at); ok {
		return err
	}
	pass, refused := a.turns.Admit(ctx, from, 1)
	if refused != nil {
		return errVerifying
	}
	defer pass.Release()
	if ok, err := a.recall(authorities, peer, at); ok { // another request of the connection has had its turn
		return err
	}
	err := peer.verify(authorities, at)
	if err != nil {
		text := err.Error()
		err = errors.New(text[:min(len(text), verdictTextBytes)])
	}
	a.note(authorities, peer, at, err)
	return err
}

// recall is the verdict on a chain that is remembered and true at a moment.
func (a *Authority) recall(authorities *rotation.Authorities, peer Chain, at time.Time) (ok bool, verdict error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verdicts.of != authorities {
		a.verdicts = verdicts{authorities, NewAnswerCache[struct{}](goodVerdictsLimit),
			NewAnswerCache[struct{}](badVerdictsLimit)}
	}
	for _, cache := range []*AnswerCache[struct{}]{a.verdicts.good, a.verdicts.bad} {
		if said, ok := cache.Recall(peer.digest, at); ok && at.After(said.At) {
			return true, said.Err
		}
	}
	return false, nil
}

// note remembers a verdict. It is true between two moments: those nearest to at of the beginnings
// and ends of all certificates that took part.
func (a *Authority) note(authorities *rotation.Authorities, peer Chain, at time.Time, verdict error) {
	since, until := steady(at, slices.Concat(peer.certificates, authorities.Certificates))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verdicts.of != authorities || !at.After(since) {
		return
	}
	cache := a.verdicts.good
	if verdict != nil {
		cache = a.verdicts.bad
	}
	cache.Note(peer.digest, Answer[struct{}]{Err: verdict, At: since}, until, at)
}

// steady returns the time around a moment in which no certificate of a list begins or ends.
func steady(at time.Time, certificates []*x509.Certificate) (since, until time.Time) {
	until = at.Add(steadyFor)
	for _, c := range certificates {
		for _, moment := range []time.Time{c.NotBefore, c.NotAfter} {
			switch {
			case moment.After(at):
				until = earlier(until, moment)
			case moment.After(since):
				since = moment
			}
		}
	}
	return since, until
}

// steadyFor is how long a verdict is remembered at most.
const steadyFor = 24 * time.Hour

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
