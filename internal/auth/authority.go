package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// Authority is a PEM file of the certificates that may vouch for clients. It is read again when it is needed and a second has passed, so
// that a rotated file counts for the next request, and for a running watch when it is checked. One that cannot be read, as in the middle
// of a rotation, leaves the one in use, as in kube-apiserver.
type Authority struct {
	// Static after construction.
	file  string
	clock clock.PassiveClock
	began time.Time
	log   *zap.Logger

	mu      sync.Mutex
	checked time.Time
	broken  bool // what is there now could not be read, and the log says so
	raw     []byte
	pool    *x509.CertPool
	certs   []*x509.Certificate
}

// reloadEvery bounds how often a file is looked at.
const reloadEvery = time.Second

// NewAuthority reads the file.
func NewAuthority(file string, clock clock.PassiveClock, log *zap.Logger) (*Authority, error) {
	now := clock.Now()
	a := &Authority{file: file, clock: clock, began: now, log: log, checked: now}
	if err := a.reloadLocked(); err != nil {
		return nil, err // not one without a pool: that would be verified by the system's
	}
	return a, nil
}

// current is the pool to verify by, and its certificates.
func (a *Authority) current() (*x509.CertPool, []*x509.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.clock.Now(); now.Sub(a.checked) >= reloadEvery {
		a.checked = now
		err := a.reloadLocked()
		if err != nil && !a.broken {
			a.log.Warn("keeping the certificate authorities in use: the new ones cannot be read", zap.Error(err))
		}
		a.broken = err != nil
	}
	return a.pool, a.certs
}

// reloadLocked reads the file, and takes it if it has changed.
func (a *Authority) reloadLocked() error {
	raw, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("certificate authorities: %w", err)
	}
	if a.pool != nil && bytes.Equal(raw, a.raw) {
		return nil
	}
	certs, err := parseAuthorities(raw)
	if err != nil {
		return fmt.Errorf("certificate authorities %s: %w", a.file, err)
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	if a.pool != nil {
		a.log.Info("certificate authorities reloaded", zap.String("file", a.file), zap.Int("certificates", len(certs)))
	}
	a.raw, a.pool, a.certs = raw, pool, certs
	return nil
}

var errNoCertificates = errors.New("there is no certificate in it")

// parseAuthorities reads the certificates of a PEM file, of which there must be one. What else is in it does not matter.
func parseAuthorities(raw []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		parsed, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, parsed...)
	}
	if len(certs) == 0 {
		return nil, errNoCertificates
	}
	return certs, nil
}

// Shares reports that both have a certificate in common, so that whom one vouches for the other may vouch for as well.
func (a *Authority) Shares(other *Authority) bool {
	_, mine := a.current()
	_, others := other.current()
	return slices.ContainsFunc(mine, func(c *x509.Certificate) bool { return slices.ContainsFunc(others, c.Equal) })
}

// verify reports why the first of the certificates is not vouched for, for a client, at a moment. The others may stand
// between. After the wall clock was set back, they must also be good at the moment that it would show otherwise.
func (a *Authority) verify(peer []*x509.Certificate, now time.Time) error {
	if err := a.verifyAt(peer, now); err != nil {
		return err
	}
	later, back := setBackSince(a.began, now)
	if !back {
		return nil
	}
	if err := a.verifyAt(peer, later); err != nil {
		return fmt.Errorf("%w (the clock of this host was set back by %v since the proxy began: if it is right now, restart the proxy)",
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

// Verify reports why a client's certificates, its own first, are not vouched for at a moment. There must be one.
func (a *Authority) Verify(peer []*x509.Certificate, now time.Time) error { return a.verify(peer, now) }
