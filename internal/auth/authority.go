package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	// failureTextBytes is how much is remembered of why a chain is bad. Errors of x509 hold the
	// certificates that they are about.
	failureTextBytes = 256
)

// Authority is a PEM file of the certificates that may vouch for clients. It is read again when it
// is needed and a second has passed. So a rotated file counts for requests within a second, and for
// a running watch when it is checked. A file that cannot be read, as in the middle of a rotation,
// leaves in use what was read last, as in kube-apiserver.
//
// A verification takes some signatures. So it is remembered for as long as the file and the clock
// leave it true, and few chains are verified at a time (verificationTurns).
type Authority struct {
	file     *rotation.Value[*rotation.Authorities]
	began    time.Time // by both clocks, see DetectSetBack
	turns    *flowcontrol.Gate
	verified verificationCache
}

// verificationTurns are those of all verifications. A processor is left to others, where there are
// two. An address has one turn at a time, and addresses take turns. The queue bounds what waiting
// requests hold. One address has at most half of its seats, so that it cannot take all of them.
var verificationTurns = flowcontrol.NewGate(flowcontrol.Options{
	Limit: int64(max(1, runtime.GOMAXPROCS(0)-1)), Share: 1, Waiting: 2048, WaitingEach: 1024, Wait: verificationWait,
})

// errVerifying is why a chain has not been verified in time.
var errVerifying = fmt.Errorf("too many certificates are being verified: %w", ErrBusy)

// NewAuthority reads the file. A file without a certificate is an error.
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

// States describes the file as it is now, also while no client is verified.
func (a *Authority) States() []rotation.FileState {
	a.file.Recent(authorityReloadInterval)
	return a.file.States()
}

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

// Verify returns nil if the Authority vouches for chain, which is not empty, at now. Its later
// certificates may be intermediates. After the wall clock was set back, the chain must also be
// valid at the moment that the clock would show otherwise. Verifications take turns by flow. If no
// turn comes in time, or ctx ends, the error wraps ErrBusy.
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

// verifyAt verifies a chain at a moment, or recalls that.
func (a *Authority) verifyAt(ctx context.Context, flow flowcontrol.Flow, chain Chain, at time.Time) error {
	if err := tlsconn.CheckCount(len(chain.certificates)); err != nil { // listeners refuse it in the handshake
		return err
	}
	authorities := a.file.Recent(authorityReloadInterval)
	if v, ok := a.verified.recall(authorities, chain, at); ok {
		return v.err
	}
	turn, refused := a.turns.Admit(ctx, flow, 1)
	if refused != nil {
		return errVerifying
	}
	defer turn.Release()
	if v, ok := a.verified.recall(authorities, chain, at); ok { // another request of the connection has had its turn
		return v.err
	}
	err := chain.verify(authorities, at)
	if err != nil {
		text := err.Error()
		err = errors.New(text[:min(len(text), failureTextBytes)])
	}
	a.verified.note(authorities, chain, at, err)
	return err
}
