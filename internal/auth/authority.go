package auth

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/rotation"
)

// Authority is a PEM file of the certificates that may vouch for clients. It is read again when it
// is needed and a second has passed, so that a rotated file counts for the next request, and for a
// running watch when it is checked. One that cannot be read, as in the middle of a rotation, leaves
// the one in use, as in kube-apiserver.
type Authority struct {
	file  *rotation.Value[*rotation.Authorities]
	began time.Time // by both clocks, see SetBackSince
}

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
	return &Authority{file: value, began: began}, nil
}

// States is how the file stands.
func (a *Authority) States() []rotation.FileState { return a.file.States() }

// current is the pool to verify by, and its certificates.
func (a *Authority) current() (*x509.CertPool, []*x509.Certificate) {
	now := a.file.Recent(reloadEvery)
	return now.Pool, now.Certificates
}

// Shares reports that both have a certificate in common, so that the other may vouch for clients of
// the one as well.
func (a *Authority) Shares(other *Authority) bool {
	_, mine := a.current()
	_, others := other.current()
	return slices.ContainsFunc(mine, func(c *x509.Certificate) bool { return slices.ContainsFunc(others, c.Equal) })
}

// Verify reports why the first of the certificates, which there must be, is not vouched for, for a
// client, at a moment. The others may stand between. After the wall clock was set back, they must
// also be good at the moment that it would show otherwise.
func (a *Authority) Verify(peer []*x509.Certificate, now time.Time) error {
	if err := a.verifyAt(peer, now); err != nil {
		return err
	}
	later, back := SetBackSince(a.began, now)
	if !back {
		return nil
	}
	if err := a.verifyAt(peer, later); err != nil {
		return fmt.Errorf("%w (the clock of this host was set back by %v since the proxy began: if it is right now, "+
			"restart the proxy)",
			err, later.Sub(now.Round(0)).Round(time.Second))
	}
	return nil
}

func (a *Authority) verifyAt(peer []*x509.Certificate, at time.Time) error {
	roots, _ := a.current()
	opts := x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(peer) > 1 {
		opts.Intermediates = x509.NewCertPool()
		for _, c := range peer[1:] {
			opts.Intermediates.AddCert(c)
		}
	}
	_, err := peer[0].Verify(opts)
	return err
}
