package clientconn

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Listener makes every connection a paced one, and counts it.
type Listener struct {
	net.Listener
	CPU      *CPULimiter
	Eviction *EvictionPolicy
	Conns    *Connections
	// Strict is what answers say of strict transport security; nil: nothing.
	Strict *string
	TLS    *tls.Config // nil: there is no TLS
	Log    *zap.Logger
}

// minAcceptRetry and maxAcceptRetry are how long an Accept that failed is not tried again, at first
// and at most (net/http's).
const (
	minAcceptRetry = 5 * time.Millisecond
	maxAcceptRetry = time.Second
)

// Accept waits for the next connection. Where the system cannot give one now, as without
// descriptors left, it tries again: an error would end the server.
func (l Listener) Accept() (net.Conn, error) {
	for pause := minAcceptRetry; ; pause = min(2*pause, maxAcceptRetry) {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			tuneTCP(c)
			paced := New(c, l.CPU, l.Eviction)
			paced.strict, paced.tls = l.Strict, l.TLS != nil
			l.Conns.admit(paced)
			if l.TLS != nil {
				return paced.Secure(l.TLS), nil
			}
			return paced, nil
		case !isTemporary(err):
			return nil, err
		}
		l.Log.Warn("a connection could not be accepted", zap.Error(err))
		time.Sleep(pause)
	}
}

// isTemporary reports that an Accept may succeed the next time: the system is short of something,
// or the client has left already.
func isTemporary(err error) bool {
	for _, short := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM,
	} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}
