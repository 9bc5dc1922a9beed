package main

import (
	"errors"
	"net"

	"spillway/internal/config"
	"spillway/internal/listen"
)

// listenerSet is the listeners of the proxy; nil: that one is off.
type listenerSet struct{ plain, tls, metrics net.Listener }

// listenAll binds every listener, so that a port in use is found before anything is started.
func listenAll(o *config.Settings) (*listenerSet, error) {
	set := &listenerSet{}
	for _, l := range []struct {
		flag, address string
		into          *net.Listener
	}{
		{"listen", o.Listen, &set.plain}, {"listen-tls", o.ListenTLS, &set.tls},
		{"metrics-listen", o.MetricsListen, &set.metrics},
	} {
		bound, err := bind(o, l.flag, l.address)
		if err != nil {
			set.close()
			return nil, err
		}
		*l.into = bound
	}
	return set, nil
}

// bind opens the listener of a flag ("listen", "listen-tls", "metrics-listen") at its address; nil
// if the address is empty. An error is one line that names the setting and the remedy.
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

// buildTLS makes the configuration of the listeners with TLS, if there are any.
func (p *process) buildTLS() error {
	o := p.o
	if o.ListenTLS == "" && !o.UsesMetricsTLS() {
		return nil
	}
	options := listen.TLS{HTTP2: !o.DisableHTTP2, CertFile: o.TLSCertFile, KeyFile: o.TLSPrivateKeyFile, Log: p.log}
	if p.pod != nil {
		options.Pair = &p.pod.identity.Certificate
	}
	secure, states, err := options.Config()
	if cause := errors.Unwrap(err); o.TLSCertFile != "" && cause != nil {
		return o.Refuse("tls-cert-file", o.TLSCertFile,
			"cannot be used with --tls-private-key-file="+o.TLSPrivateKeyFile+": "+config.Cause(cause))
	}
	if err != nil {
		return err
	}
	if states != nil {
		p.followed.Add(states)
	}
	if p.access.tls != nil && p.pod == nil { // a pod's clients bring tokens
		listen.RequestCertificates(secure, p.access.tls.Authenticator.ClientCAs)
	}
	p.secure = secure
	return nil
}
