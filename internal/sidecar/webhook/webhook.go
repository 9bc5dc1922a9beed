// Package webhook runs the mutating admission webhook that adds sidecars to pods: its listener, the
// rules of namespaces that it follows, and its memory. Package admission answers the reviews.
//
// Invariant: of the cluster it holds the rules of namespaces alone, and with LimitsIgnore nothing.
// While it does not know the rules of a namespace, pods are created there without sidecars.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/flowcontrol"
	"spillway/internal/listen"
	"spillway/internal/sidecar/admission"
	"spillway/internal/sidecar/inject"
	"spillway/internal/tlsconn"
)

// Values of Webhook.Limits.
const (
	LimitsRead   = "read"   // keep sidecars to what namespaces allow
	LimitsIgnore = "ignore" // namespaces allow everything
)

// Webhook is the settings of a webhook, as its flags are named.
type Webhook struct {
	Sidecar           inject.Options
	Listen            string // address
	CertFile, KeyFile string
	ClientCA          string // file; empty: every client is answered
	ClientNames       []string
	Limits            string // LimitsRead or LimitsIgnore
	Kubeconfig        string // path; in-cluster configuration when empty
}

// Validate checks the settings. An error is one line that names the flag of the setting.
func (w *Webhook) Validate() error {
	if err := w.Sidecar.Validate(); err != nil {
		return err
	}
	if _, err := listen.SplitAddress(w.Listen); err != nil {
		return fmt.Errorf("--listen=%s: %w", w.Listen, err)
	}
	if w.CertFile == "" || w.KeyFile == "" {
		return errors.New("--tls-cert-file and --tls-private-key-file are needed: the API server talks to webhooks over " +
			"TLS only")
	}
	if len(w.ClientNames) > 0 && w.ClientCA == "" {
		return fmt.Errorf("--client-allowed-names=%s: needs --client-ca-file, by which names are verified",
			strings.Join(w.ClientNames, ","))
	}
	if w.Kubeconfig != "" && w.Limits == LimitsIgnore {
		return fmt.Errorf("--kubeconfig=%s: has no meaning with --namespace-limits=ignore", w.Kubeconfig)
	}
	return nil
}

// Run serves until drain ends. It waits for reviews in progress until stop ends.
func (w *Webhook) Run(drain, stop context.Context, log *zap.Logger) error {
	config, verify, err := w.newTLS(log)
	if err != nil {
		return err
	}
	listener, err := listen.Open(w.Listen, listen.Socket{})
	if err != nil {
		return fmt.Errorf("--listen=%s: %s", w.Listen, listen.Problem(err))
	}
	running, stopTasks := context.WithCancel(context.WithoutCancel(drain)) // reviews go on after drain
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stopTasks()
	var rulesOf admission.RulesFunc // nil: namespaces allow everything
	countRules := func() int { return 0 }
	if w.Limits == LimitsRead {
		rules, err := newClusterRules(w.Kubeconfig, log)
		if err != nil {
			_ = listener.Close()
			return fmt.Errorf("--namespace-limits=read: %w", err)
		}
		tasks.Go(func() { rules.follow(running) })
		rules.await(drain)
		rulesOf, countRules = rules.follower.Of, rules.follower.Len
	}
	limit := newMemoryLimit(countRules, log)
	limitBytes := limit.fit()
	tasks.Go(func() { limit.follow(running) })
	server := admission.NewServer(w.newHandler(verify, rulesOf, log), config, log)
	served := make(chan error, 1)
	go func() { served <- tlsconn.Serve(server, listener) }()
	log.Info("serving admission reviews", zap.Stringer("address", listener.Addr()), zap.Int64("gomemlimit", limitBytes))
	select {
	case err := <-served:
		return fmt.Errorf("serving admission reviews on %s: %w", listener.Addr(), err)
	case <-drain.Done():
	}
	if err := server.Shutdown(stop); err != nil {
		log.Warn("reviews in progress did not end in time", zap.Error(err))
		_ = server.Close()
	}
	log.Info("stopped")
	return nil
}

// newTLS makes the configuration of the listener, and what verifies those that send reviews.
func (w *Webhook) newTLS(log *zap.Logger) (*tls.Config, admission.VerifyFunc, error) {
	pair, err := listen.ReadCertificate(w.CertFile, w.KeyFile, log)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get, SessionTicketsDisabled: true}
	verify, err := w.newVerifier(log)
	if verify != nil {
		config.ClientAuth = tls.RequestClientCert // verified for each review: probes have none
		config.VerifyConnection = tlsconn.CheckCertificates
	}
	return config, verify, err
}

// newVerifier makes the check of the client certificate that comes with a review. Without
// --client-ca-file it returns nil, and every client may send reviews.
func (w *Webhook) newVerifier(log *zap.Logger) (admission.VerifyFunc, error) {
	if w.ClientCA == "" {
		return nil, nil
	}
	authority, err := auth.NewAuthority(w.ClientCA, clock.RealClock{}, log)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file=%s: %w", w.ClientCA, err)
	}
	return func(ctx context.Context, from netip.Addr, peer []*x509.Certificate) error {
		err := authority.Verify(ctx, flowcontrol.AddrFlow(from), auth.NewChain(peer), time.Now())
		if err != nil {
			return err
		}
		if name := peer[0].Subject.CommonName; len(w.ClientNames) > 0 && !slices.Contains(w.ClientNames, name) {
			return fmt.Errorf("its common name %q is not in --client-allowed-names", name)
		}
		return nil
	}, nil
}

// newHandler answers reviews and probes. Probes succeed while the listener is open.
func (w *Webhook) newHandler(verify admission.VerifyFunc, rules admission.RulesFunc, log *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /inject", admission.Handler(w.Sidecar, verify, rules, log))
	for _, probe := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+probe, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	return mux
}
