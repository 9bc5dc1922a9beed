package main

import (
	"crypto/tls"
	"errors"
	"net"

	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/listen"
	"spillway/internal/rotation"
)

// listenerSet is what the proxy listens on; nil where it does not.
type listenerSet struct{ plain, tls, metrics net.Listener }

// listenAll binds every listener before anything is started, so that a port in use costs nothing.
func listenAll(o *config.Settings) (*listenerSet, error) {
	set := &listenerSet{}
	for _, l := range []struct {
		flag, address string
		to            *net.Listener
	}{
		{"listen", o.Listen, &set.plain}, {"listen-tls", o.ListenTLS, &set.tls},
		{"metrics-listen", o.MetricsListen, &set.metrics},
	} {
		bound, err := bind(o, l.flag, l.address)
		if err != nil {
			set.close()
			return nil, err
		}
		*l.to = bound
	}
	return set, nil
}

// bind opens the listener of the flag named ("listen", "listen-tls", "metrics-listen") at its
// address; nil if the address is empty: the listener is off. An error is one line that names the
// setting and the remedy.
func bind(o *config.Settings, flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := listen.Open(address, listen.Socket{Mode: o.SocketMode, Owner: o.SocketOwner})
	switch {
	case errors.Is(err, listen.ErrOwner):
		return nil, o.Refuse("listen-owner", o.ListenOwner, "the socket cannot be given to it: "+config.Cause(err)+
			"; only root may, or its user to one of the user's groups")
	case errors.Is(err, listen.ErrMode):
		return nil, o.Refuse("listen-mode", o.ListenMode, "the socket cannot have it: "+config.Cause(err))
	case err != nil:
		return nil, o.Refuse(flag, address, listen.Problem(err))
	}
	return listener, nil
}

// close closes what is open. Closing twice does no harm.
func (s *listenerSet) close() {
	for _, l := range []net.Listener{s.plain, s.tls, s.metrics} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// secureListeners is how those with TLS are served; nil if there are none.
func secureListeners(o *config.Settings, access *access, pod *podFiles, followed *rotation.FollowedFiles,
	log *zap.Logger) (*tls.Config, error) {
	if o.ListenTLS == "" && !o.MetricsTLS {
		return nil, nil
	}
	options := listen.TLS{HTTP2: o.HTTP2, CertFile: o.TLSCertFile, KeyFile: o.TLSPrivateKeyFile, Log: log}
	if pod != nil {
		options.Pair = &pod.identity.Certificate
	}
	secure, states, err := options.Config()
	if cause := errors.Unwrap(err); o.TLSCertFile != "" && cause != nil {
		return nil, o.Refuse("tls-cert-file", o.TLSCertFile,
			"cannot be used with --tls-private-key-file="+o.TLSPrivateKeyFile+": "+config.Cause(cause))
	}
	if err != nil {
		return nil, err
	}
	if states != nil {
		followed.Add(states)
	}
	if access.tls != nil && pod == nil { // a pod's clients bring tokens
		listen.RequestCertificates(secure, access.tls.Authenticator.ClientCAs)
	}
	return secure, nil
}
